package crilog

import (
	"bytes"
	"time"
)

// Stream selects an output of a container. Its values are those of PodLogOptions.stream.
type Stream string

// These are the values of Stream.
const (
	All    Stream = "All"
	Stdout Stream = "Stdout"
	Stderr Stream = "Stderr"
)

// maxHead bounds the length of the time (35), the stream (6), a few tags and the spaces of a line, in bytes.
const maxHead = 128

// head is the part of a log line before its content: time, stream and tags.
type head struct {
	at      time.Time
	stream  Stream
	partial bool
}

// parseHead splits a line into its head and its content. ok is false if the line is not in the format.
func parseHead(line []byte) (h head, content []byte, ok bool) {
	at, rest, found := bytes.Cut(line, []byte{' '})
	if !found || len(at) > maxHead {
		return head{}, nil, false
	}
	t, err := time.Parse(time.RFC3339Nano, string(at))
	if err != nil {
		return head{}, nil, false
	}
	h.at = t
	h.stream, h.partial, content, ok = parseKind(rest)
	return h, content, ok
}

// parseKind parses the part of a line after the time: stream, tags and content. partial is true for the tag P. ok is false if the
// line is not in the format.
func parseKind(rest []byte) (s Stream, partial bool, content []byte, ok bool) {
	stream, rest, found := bytes.Cut(rest, []byte{' '})
	if !found {
		return "", false, nil, false
	}
	switch string(stream) {
	case "stdout":
		s = Stdout
	case "stderr":
		s = Stderr
	default:
		return "", false, nil, false
	}
	tags, content, found := bytes.Cut(rest, []byte{' '})
	if !found {
		// A runtime may leave out the last space of an empty line.
		tags, content = bytes.TrimSuffix(rest, []byte{'\n'}), rest[len(bytes.TrimSuffix(rest, []byte{'\n'})):]
	}
	if len(tags) == 0 || len(tags) > maxHead {
		return "", false, nil, false
	}
	first, _, _ := bytes.Cut(tags, []byte{':'}) // tags are separated by colons; the first is P or F
	return s, string(first) == "P", content, true
}

// wants reports whether the options select the lines of stream s.
func (o *Options) wants(s Stream) bool { return o.Stream == "" || o.Stream == All || o.Stream == s }
