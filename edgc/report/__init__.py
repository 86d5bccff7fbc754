"""From run folders to what is published: tidy frames, tables, figures. Never imports torch."""
