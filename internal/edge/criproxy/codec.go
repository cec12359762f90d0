package criproxy

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// frame is a message as it was received. Whoever has a frame either sends it or calls data.Free, once.
type frame struct{ data mem.BufferSlice }

// rawCodec passes messages through as bytes, without a copy.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Marshal returns the bytes of a frame. gRPC frees them when they have been sent.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("send a %T: only a frame can be sent", v)
	}
	return f.data, nil
}

// Unmarshal stores the bytes of a message in a frame.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("receive a %T: only a frame can be received", v)
	}
	data.Ref() // gRPC frees its own reference when Unmarshal returns
	f.data = data
	return nil
}

// Name returns the name of the format that CRI's messages have.
func (rawCodec) Name() string { return "proto" }
