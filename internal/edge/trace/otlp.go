package trace

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// These are the numbers of the fields in opentelemetry-proto 1. The comment at the first field of each message names the message.
const (
	fieldResourceSpans = 1 // message ExportTraceServiceRequest

	fieldResource   = 1 // message ResourceSpans
	fieldScopeSpans = 2

	fieldResourceAttributes = 1 // message Resource

	fieldScope = 1 // message ScopeSpans
	fieldSpans = 2

	fieldScopeName    = 1 // message InstrumentationScope
	fieldScopeVersion = 2

	fieldTraceID    = 1 // message Span
	fieldSpanID     = 2
	fieldParentID   = 4
	fieldName       = 5
	fieldKind       = 6
	fieldStart      = 7
	fieldEnd        = 8
	fieldAttributes = 9
	fieldStatus     = 15
	fieldFlags      = 16

	fieldStatusMessage = 2 // message Status
	fieldStatusCode    = 3

	fieldKey   = 1 // message KeyValue
	fieldValue = 2

	fieldString = 1 // message AnyValue
)

const (
	statusOK    = 1
	statusError = 2
	flagSampled = 1
)

// scope is the name of the program that created the spans.
const scope = "github.com/wherry-node/wherry"

// request returns an ExportTraceServiceRequest with spans.
func (t *Tracer) request(spans []*Span) []byte {
	var resource, inScope []byte
	for _, a := range t.cfg.Resource {
		resource = appendMessage(resource, fieldResourceAttributes, attribute(a))
	}
	inScope = appendMessage(inScope, fieldScope, appendText(appendText(nil, fieldScopeName, scope), fieldScopeVersion, t.cfg.Version))
	for _, s := range spans {
		inScope = appendMessage(inScope, fieldSpans, s.message())
	}
	all := appendMessage(nil, fieldResource, resource)
	return appendMessage(nil, fieldResourceSpans, appendMessage(all, fieldScopeSpans, inScope))
}

// message returns the span in the encoding of OTLP.
func (s *Span) message() []byte {
	b := appendMessage(nil, fieldTraceID, s.trace[:])
	b = appendMessage(b, fieldSpanID, s.id[:])
	if s.parent != [8]byte{} {
		b = appendMessage(b, fieldParentID, s.parent[:])
	}
	b = appendText(b, fieldName, s.name)
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldKind, protowire.VarintType), uint64(s.kind))
	b = appendTime(b, fieldStart, s.began)
	b = appendTime(b, fieldEnd, s.end)
	for _, a := range s.attributes {
		b = appendMessage(b, fieldAttributes, attribute(a))
	}
	status, code := appendText(nil, fieldStatusMessage, s.problem), uint64(statusOK)
	if s.failed {
		code = statusError
	}
	status = protowire.AppendVarint(protowire.AppendTag(status, fieldStatusCode, protowire.VarintType), code)
	b = appendMessage(b, fieldStatus, status)
	return protowire.AppendFixed32(protowire.AppendTag(b, fieldFlags, protowire.Fixed32Type), flagSampled)
}

func attribute(a Attribute) []byte {
	return appendMessage(appendText(nil, fieldKey, a.Key), fieldValue, appendText(nil, fieldString, a.Value))
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendTime(b []byte, field protowire.Number, at time.Time) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), uint64(max(0, at.UnixNano()))) //nolint:gosec // not below 0
}
