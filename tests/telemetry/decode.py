"""Decodes what a collector was sent, with the official protobuf classes, and prints it as JSON.

Runs in the Python of target/telemetry, which has `opentelemetry-proto`.
"""

import json
import pathlib
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


def value(any_value):
    kind = any_value.WhichOneof("value")
    return getattr(any_value, kind) if kind else None


def attributes(pairs):
    named = {pair.key: value(pair.value) for pair in pairs}
    assert len(named) == len(pairs), "an attribute is there twice"
    return named


def strict(request, body):
    request.ParseFromString(body)
    assert not len(UnknownFieldSet(request)), "fields that the protocol does not have"
    return request


def main(folder):
    found = {"spans": [], "metrics": [], "logs": []}
    for path in sorted(pathlib.Path(folder).iterdir()):
        body = path.read_bytes()
        if path.name.startswith("traces"):
            for resource in strict(ExportTraceServiceRequest(), body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found["spans"].append({
                            "trace": span.trace_id.hex(), "span": span.span_id.hex(),
                            "parent": span.parent_span_id.hex(), "name": span.name,
                            "kind": Span.SpanKind.Name(span.kind), "status": Status.StatusCode.Name(span.status.code),
                            "start": span.start_time_unix_nano, "end": span.end_time_unix_nano,
                            "attributes": attributes(span.attributes), "scope": scope.scope.name,
                            "resource": attributes(resource.resource.attributes)})
        elif path.name.startswith("metrics"):
            for resource in strict(ExportMetricsServiceRequest(), body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        kind = metric.WhichOneof("data")
                        data = getattr(metric, kind)
                        points = []
                        for point in data.data_points:
                            one = {"attributes": attributes(point.attributes), "start": point.start_time_unix_nano,
                                   "time": point.time_unix_nano}
                            if kind == "histogram":
                                one |= {"count": point.count, "sum": point.sum, "bounds": list(point.explicit_bounds),
                                        "counts": list(point.bucket_counts),
                                        "exemplars": [each.trace_id.hex() for each in point.exemplars]}
                            else:
                                one["value"] = point.as_double
                            points.append(one)
                        found["metrics"].append({"name": metric.name, "unit": metric.unit, "kind": kind,
                                                 "monotonic": getattr(data, "is_monotonic", None), "points": points,
                                                 "temporality": getattr(data, "aggregation_temporality", None)})
        else:
            for resource in strict(ExportLogsServiceRequest(), body).resource_logs:
                for scope in resource.scope_logs:
                    for line in scope.log_records:
                        found["logs"].append({
                            "body": value(line.body), "severity": line.severity_text, "number": line.severity_number,
                            "event": line.event_name, "trace": line.trace_id.hex(), "time": line.time_unix_nano,
                            "attributes": attributes(line.attributes)})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
