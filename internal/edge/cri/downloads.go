package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Download is a part of an image that the runtime is receiving: a layer, a manifest or a configuration.
type Download struct {
	Ref string // names the part; it does not say which image it belongs to
	// Received is how many bytes have arrived, and Total how many the part has; a Total of 0 is not known.
	Received, Total int64
}

// ErrNoDownloads means that the runtime does not report its downloads. CRI has no call for that; containerd has one of its own.
var ErrNoDownloads = errors.New("the runtime does not report its downloads")

// The call of containerd's content service that lists what is being written to the store, and the bounds of its answer.
const (
	listStatuses     = "/containerd.services.content.v1.Content/ListStatuses"
	namespaceHeader  = "containerd-namespace"
	namespace        = "k8s.io" // the namespace of all that containerd's CRI plugin does
	downloadsWithin  = 2 * time.Second
	maxDownloadBytes = 1 << 20
	maxDownloads     = 4096
	maxDownloadRef   = 256
	maxDownloadSize  = 1 << 50 // bytes; the sum of maxDownloads such sizes fits into an int64
)

// Downloads returns a function that lists what the runtime downloads at the moment, for all its images together. Its error is
// ErrNoDownloads if the runtime cannot say. Calls may be concurrent.
func Downloads(conn grpc.ClientConnInterface) func(context.Context) ([]Download, error) {
	return func(ctx context.Context) ([]Download, error) {
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, namespaceHeader, namespace), downloadsWithin)
		defer cancel()
		var answer []byte
		err := conn.Invoke(ctx, listStatuses, []byte{}, &answer, grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(maxDownloadBytes))
		if status.Code(err) == codes.Unimplemented {
			return nil, ErrNoDownloads
		}
		if err != nil {
			return nil, fmt.Errorf("list the runtime's downloads: %w", err)
		}
		return parseStatuses(answer)
	}
}

// rawCodec passes messages on as bytes.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("message of type %T", v)
	}
	return b, nil
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("message of type %T", v)
	}
	*b = append([]byte(nil), data...)
	return nil
}

// parseStatuses reads a ListStatusesResponse. Its field 1 has the downloads; in each of them field 3 is the reference, 4 the offset, and 5
// the total.
func parseStatuses(b []byte) (out []Download, err error) {
	err = fields(b, func(n protowire.Number, _ uint64, message []byte) error {
		if n != 1 || message == nil {
			return nil
		}
		if len(out) == maxDownloads {
			return fmt.Errorf("more than %d downloads", maxDownloads)
		}
		var d Download
		err := fields(message, func(n protowire.Number, v uint64, text []byte) error {
			switch n {
			case 3:
				d.Ref = string(text[:min(len(text), maxDownloadRef)])
			case 4:
				d.Received = min(max(0, int64(v)), maxDownloadSize)
			case 5:
				d.Total = min(max(0, int64(v)), maxDownloadSize)
			}
			return nil
		})
		out = append(out, d)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list of the runtime's downloads: %w", err)
	}
	return out, nil
}

// fields calls f for each field of a message: with its number, and with the value of a varint or the content of a message or text.
func fields(b []byte, f func(n protowire.Number, v uint64, content []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		length := protowire.ConsumeFieldValue(n, kind, b)
		if length < 0 {
			return protowire.ParseError(length)
		}
		var v uint64
		var content []byte
		switch kind {
		case protowire.VarintType:
			v, _ = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			content, _ = protowire.ConsumeBytes(b)
		}
		if err := f(n, v, content); err != nil {
			return err
		}
		b = b[length:]
	}
	return nil
}
