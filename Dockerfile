# Two images from one file:
#
#   docker build --target server -t dag-acfl-server .      a ledger server; no torch
#   docker build --target client -t dag-acfl-client .      a participant; CPU torch
#
# Both run as uid 10001, keep everything in /data, and need nothing else to be writable but /tmp.
# docs/containers.md says how they are tried.

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

# The environment has no pip of its own: no image installs anything.
FROM ${PYTHON_IMAGE} AS python
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_INPUT=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_CONSTRAINT=/src/constraints.txt
WORKDIR /src
COPY constraints.txt ./
RUN python -m venv --without-pip /opt/dag-acfl

FROM python AS wheel
RUN pip install hatchling
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
COPY fl_core ./fl_core
COPY ledger_server ./ledger_server
COPY fl_client ./fl_client
COPY fl_simulator ./fl_simulator
COPY dag_acfl ./dag_acfl
COPY migrations ./migrations
# Of which commit the wheel is: --build-arg REVISION=$(git rev-parse HEAD)
ARG REVISION=unknown
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# Packages before the wheel, so that a change of the code installs none again; their own tests, 40 MB, go.
FROM python AS packages
COPY pyproject.toml ./
RUN python3 -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *(r for e in ('otel', 'postgres', 's3') for r in p['optional-dependencies'][e]), sep='\n')" > requirements.txt \
 && pip --python /opt/dag-acfl/bin/python install -r requirements.txt \
 && find /opt/dag-acfl -type d -name tests -prune -exec rm -r {} +

FROM packages AS server-packages
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/dag-acfl/bin/python install --no-deps /wheels/*.whl

FROM packages AS client-packages
# PyTorch's CPU index, where PyPI's torch would bring CUDA: --build-arg TORCH_INDEX=…
ARG TORCH_INDEX=
RUN pip --python /opt/dag-acfl/bin/python install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "$(grep '^torch==' constraints.txt)"
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/dag-acfl/bin/python install --no-deps /wheels/*.whl

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
 && install --directory --owner=10001 --group=10001 --mode=0700 /data /shared /access /sites
ENV PATH=/opt/dag-acfl/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DAG_ACFL_DATA_DIR=/data
WORKDIR /data
VOLUME ["/data"]
USER 10001:10001
ENTRYPOINT ["dag-acfl"]

FROM base AS server
COPY --from=server-packages /opt/dag-acfl /opt/dag-acfl
ENV DAG_ACFL_HOST=0.0.0.0 \
    DAG_ACFL_PORT=8900 \
    SCHEME=http \
    OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1
EXPOSE 8900
STOPSIGNAL SIGTERM
# With TLS it asks by SCHEME=https; whose certificate it is does not matter on loopback.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, ssl, urllib.request as r; r.urlopen(f'{os.environ[\"SCHEME\"]}://127.0.0.1:{os.environ[\"DAG_ACFL_PORT\"]}/readyz', timeout=4, context=ssl._create_unverified_context())"]
CMD ["serve"]

FROM base AS client
COPY --from=client-packages /opt/dag-acfl /opt/dag-acfl
COPY examples /opt/examples
CMD ["client", "run", "/opt/examples/container_client.py", "--server", "http://server:8900", "--state", "/data/state", "--transactions", "50"]
