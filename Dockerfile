# Two images from one file:
#
#   docker build --target server -t dag-acfl-server .      a ledger server; no torch
#   docker build --target client -t dag-acfl-client .      a participant; CPU torch
#
# Both run as uid 10001, keep everything in /data, and need nothing else to be writable but /tmp.
# docs/containers.md says how the steps are checked without a Docker engine.

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_INPUT=1 \
    PIP_CONSTRAINT=/src/constraints.txt
WORKDIR /src
COPY constraints.txt ./
RUN python -m venv /opt/dag-acfl
RUN pip install --no-cache-dir hatchling
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
COPY fl_core ./fl_core
COPY ledger_server ./ledger_server
COPY fl_client ./fl_client
COPY fl_simulator ./fl_simulator
COPY dag_acfl ./dag_acfl
COPY migrations ./migrations
# Of which commit the wheel is: --build-arg REVISION=$(git rev-parse HEAD)
ARG REVISION=unknown
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM build AS server-packages
RUN /opt/dag-acfl/bin/pip install --no-cache-dir "$(ls /wheels/*.whl)[postgres,s3]"

FROM build AS client-packages
# PyTorch's CPU index, where PyPI's torch would bring CUDA: --build-arg TORCH_INDEX=…
ARG TORCH_INDEX=
RUN /opt/dag-acfl/bin/pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "$(grep '^torch==' constraints.txt)"
RUN /opt/dag-acfl/bin/pip install --no-cache-dir "$(ls /wheels/*.whl)[torch,postgres]"

FROM ${PYTHON_IMAGE} AS base
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="dag-acfl" \
      org.opencontainers.image.description="Federated learning without a coordinator, without rounds and without a preset number of clusters" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN groupadd --gid 10001 dag-acfl \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin dag-acfl \
 && install --directory --owner=10001 --group=10001 --mode=0700 /data /shared
ENV PATH=/opt/dag-acfl/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DAG_ACFL_DATA_DIR=/data \
    MALLOC_ARENA_MAX=2
WORKDIR /data
VOLUME ["/data"]
USER 10001:10001
ENTRYPOINT ["dag-acfl"]

FROM base AS server
COPY --from=server-packages /opt/dag-acfl /opt/dag-acfl
ENV DAG_ACFL_HOST=0.0.0.0 \
    DAG_ACFL_PORT=8900 \
    OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1
EXPOSE 8900
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"DAG_ACFL_PORT\"]}/readyz', timeout=4)"]
CMD ["serve"]

FROM base AS client
COPY --from=client-packages /opt/dag-acfl /opt/dag-acfl
COPY examples /opt/examples
CMD ["client", "run", "/opt/examples/container_client.py", "--server", "http://server:8900", "--state", "/data/state", "--transactions", "50"]
