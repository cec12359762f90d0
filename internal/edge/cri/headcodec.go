package cri

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that headCodec wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// headCodec decodes the answer of ExecSync and keeps only the beginning of each output (execOutput bytes). gRPC's codec would
// copy the whole message twice before it could be cut: 16 MiB of output would cost the agent 48 MiB. With headCodec it costs 16
// MiB.
type headCodec struct{ encoding.CodecV2 }

// newHeadCodec returns a headCodec that wraps gRPC's own codec for protobuf.
func newHeadCodec() headCodec { return headCodec{encoding.GetCodecV2("proto")} }

// Unmarshal decodes an ExecSyncResponse. It leaves every other message to gRPC's own codec.
func (c headCodec) Unmarshal(data mem.BufferSlice, v any) error {
	answer, ok := v.(*runtimeapi.ExecSyncResponse)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	r := data.Reader()
	defer r.Close()
	if err := readExecAnswer(r, answer); err != nil {
		return fmt.Errorf("decode the answer of ExecSync: %w", err)
	}
	return nil
}

var errBadMessage = errors.New("not a protobuf message")

// readExecAnswer reads the fields of an ExecSyncResponse: stdout (1), stderr (2) and the exit code (3). It skips other fields.
func readExecAnswer(r *mem.Reader, answer *runtimeapi.ExecSyncResponse) error {
	for r.Remaining() > 0 {
		tag, err := binary.ReadUvarint(r)
		if err != nil {
			return errBadMessage
		}
		number, kind := protowire.DecodeTag(tag)
		switch kind {
		case protowire.VarintType:
			value, err := binary.ReadUvarint(r)
			if err != nil {
				return errBadMessage
			}
			if number == 3 {
				answer.ExitCode = int32(value) //nolint:gosec // protobuf sends an int32 as its low 32 bits
			}
		case protowire.BytesType:
			length, err := binary.ReadUvarint(r)
			if err != nil || length > uint64(r.Remaining()) {
				return errBadMessage
			}
			kept := 0
			if number == 1 || number == 2 {
				kept = min(int(length), execOutput)
			}
			head := make([]byte, kept)
			if _, err := io.ReadFull(r, head); err != nil {
				return errBadMessage
			}
			switch number {
			case 1:
				answer.Stdout = head
			case 2:
				answer.Stderr = head
			}
			if _, err := r.Discard(int(length) - kept); err != nil {
				return errBadMessage
			}
		case protowire.Fixed32Type, protowire.Fixed64Type:
			size := 4
			if kind == protowire.Fixed64Type {
				size = 8
			}
			if _, err := r.Discard(size); err != nil {
				return errBadMessage
			}
		default:
			return errBadMessage
		}
	}
	return nil
}
