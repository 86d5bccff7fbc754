rule prepare:
    input:
        corpus_files,
    output:
        f"{CORPUS_DIR}/manifest.json",
    log:
        f"{CORPUS_DIR}/prepare.log",
    resources:
        **(batch_settings(CLUSTER, 1) | {"mem_mb": 8000, "runtime": 1440}),
    params:
        corpus=CORPUS.name,
        out=subpath(output[0], parent=True),
    shell:
        '"$EDGC_PYTHON" -m edgc prepare {params.corpus:q} --out {params.out:q} 2>&1 | tee {log:q}'
