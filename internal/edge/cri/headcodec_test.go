package cri

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// split cuts a message into buffers of a given size, as the network does.
func split(data []byte, size int) (all mem.BufferSlice) {
	for len(data) > 0 {
		n := min(size, len(data))
		all = append(all, mem.SliceBuffer(data[:n]))
		data = data[n:]
	}
	return all
}

// The codec keeps the beginning of each output and all other fields, for outputs of any size.
func TestHeadOfOutputs(t *testing.T) {
	t.Parallel()
	for _, sizes := range [][2]int{{0, 0}, {1, 0}, {execOutput, execOutput + 1}, {3 << 20, 5}, {7, 2 << 20}} {
		for _, code := range []int32{0, 1, 137, -1} {
			want := &runtimeapi.ExecSyncResponse{Stdout: bytes.Repeat([]byte("o"), sizes[0]), Stderr: bytes.Repeat([]byte("e"), sizes[1]), ExitCode: code}
			wire, err := proto.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			got := &runtimeapi.ExecSyncResponse{}
			if err := newHeadCodec().Unmarshal(split(wire, 16<<10), got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Stdout, head(want.Stdout)) || !bytes.Equal(got.Stderr, head(want.Stderr)) || got.ExitCode != code {
				t.Errorf("outputs of %v bytes, code %d: got %d and %d bytes, code %d", sizes, code, len(got.Stdout), len(got.Stderr), got.ExitCode)
			}
		}
	}
}

// For any bytes, the codec agrees with protobuf's own decoder, or returns an error.
func FuzzHeadOfOutputs(f *testing.F) {
	f.Add([]byte{}, 3)
	for _, m := range []*runtimeapi.ExecSyncResponse{{Stdout: []byte("out"), ExitCode: 1}, {Stderr: bytes.Repeat([]byte("e"), 100), ExitCode: -1}} {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, 2)
		f.Add(wire[:len(wire)-1], 5)
	}
	f.Fuzz(func(t *testing.T, wire []byte, size int) {
		got, want := &runtimeapi.ExecSyncResponse{}, &runtimeapi.ExecSyncResponse{}
		err := newHeadCodec().Unmarshal(split(wire, min(max(size, 1), 1<<16)), got)
		if wantErr := proto.Unmarshal(wire, want); wantErr != nil || err != nil {
			return // protobuf checks unknown fields more strictly, and accepts groups
		}
		if !bytes.Equal(got.Stdout, head(want.Stdout)) || !bytes.Equal(got.Stderr, head(want.Stderr)) || got.ExitCode != want.ExitCode {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
