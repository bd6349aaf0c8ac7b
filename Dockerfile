# docker build -t kvcast . && docker run --rm -v "$PWD":/work kvcast run run.yaml
FROM debian:12 AS build
COPY . /kvcast
RUN cd /kvcast && python/build_wheel.sh /dist

FROM debian:12
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-pip python3-numpy python3-pandas nodejs && rm -rf /var/lib/apt/lists/*
RUN --mount=from=build,source=/dist,target=/dist pip3 install --break-system-packages --no-index --no-deps /dist/kvcast-*.whl
WORKDIR /work
ENTRYPOINT ["kvcast"]
