# The bundled broker in an image: docker build -t rocketmq-broker .
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE requirements-dev.lock ./
COPY connector connector
COPY broker_sim broker_sim
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
# The tested versions, as constraints: with their hashes pip would want one of the wheel above, too.
RUN sed -E '/--hash/d; s/ *\\$//' requirements-dev.lock > /wheels/constraints.txt

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /wheels/constraints.txt "pyspark-rocketmq[cli] @ file://$(echo /wheels/*.whl)"
RUN useradd --uid 10001 --no-create-home rocketmq && mkdir /data && chown rocketmq /data
USER rocketmq
WORKDIR /data
VOLUME /data
EXPOSE 9876 8081
# For commands in the container: docker exec NAME rmq topic list
ENV NAMESRV_ADDR=127.0.0.1:9876
ENTRYPOINT ["rmq", "serve", "--host", "0.0.0.0", "--port", "9876", "--grpc-port", "8081", "--data-dir", "/data"]
# Over gRPC, which needs no advertised address: that one may not be reachable from in here.
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s CMD ["rmq", "check", "--no-spark", "--endpoints", "127.0.0.1:8081"]
