package cri

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
)

// statuses returns a ListStatusesResponse of containerd.
func statuses(all ...Download) (out []byte) {
	for _, d := range all {
		var m []byte
		m = protowire.AppendBytes(protowire.AppendTag(m, 1, protowire.BytesType), []byte{8, 1}) // started_at
		m = protowire.AppendString(protowire.AppendTag(m, 3, protowire.BytesType), d.Ref)
		m = protowire.AppendVarint(protowire.AppendTag(m, 4, protowire.VarintType), uint64(d.Received))
		m = protowire.AppendVarint(protowire.AppendTag(m, 5, protowire.VarintType), uint64(d.Total))
		m = protowire.AppendString(protowire.AppendTag(m, 6, protowire.BytesType), "sha256:1")
		out = protowire.AppendBytes(protowire.AppendTag(out, 1, protowire.BytesType), m)
	}
	return out
}

// contentService serves answer as containerd's content service; nil: there is no such service. It returns a connection.
func contentService(t *testing.T, answer []byte) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(64 << 10)
	s := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}))
	if answer != nil {
		s.RegisterService(&grpc.ServiceDesc{
			ServiceName: "containerd.services.content.v1.Content", HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{MethodName: "ListStatuses", Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				md, _ := metadata.FromIncomingContext(ctx)
				if got := md.Get("containerd-namespace"); len(got) != 1 || got[0] != "k8s.io" {
					return nil, errors.New("no namespace")
				}
				var in []byte
				return answer, dec(&in)
			}}},
		}, nil)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	conn, err := grpc.NewClient("passthrough:///runtime", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		<-ended
	})
	return conn
}

func TestDownloads(t *testing.T) {
	t.Parallel()
	two := []Download{{"layer-sha256:1", 12 << 20, 340 << 20}, {"manifest-sha256:2", 0, 0}}
	many := make([]Download, maxDownloads+1)
	for _, c := range []struct {
		name   string
		answer []byte
		want   []Download
		err    string
	}{
		{name: "two downloads", answer: statuses(two...), want: two},
		{name: "none", answer: []byte{}},
		{name: "sizes that no image has", answer: statuses(Download{"a", 1<<63 - 1, 1<<63 - 1}), want: []Download{{"a", maxDownloadSize, maxDownloadSize}}},
		{name: "a runtime without this service", err: ErrNoDownloads.Error()},
		{name: "a long reference", answer: statuses(Download{Ref: strings.Repeat("r", 1000)}), want: []Download{{Ref: strings.Repeat("r", maxDownloadRef)}}},
		{name: "negative sizes", answer: statuses(Download{"r", -1, -5}), want: []Download{{Ref: "r"}}},
		{name: "garbage", answer: []byte("garbage"), err: "list of the runtime's downloads: "},
		{name: "a cut answer", answer: statuses(two...)[:20], err: "list of the runtime's downloads: "},
		{name: "very many", answer: statuses(many...), err: "more than 4096 downloads"},
		{name: "a huge answer", answer: statuses(Download{Ref: strings.Repeat("r", maxDownloadBytes)}), err: "received message larger than max"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := Downloads(contentService(t, c.answer))(t.Context())
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("downloads (-want +got):\n%s", d)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

// No answer of a runtime makes the parser panic, or return more than its bounds.
func FuzzParseStatuses(f *testing.F) {
	f.Add(statuses(Download{"layer-sha256:1", 12, 340}))
	f.Add([]byte{10, 2, 24, 1}) // the reference is a number
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseStatuses(b)
		if err != nil && got != nil || len(got) > maxDownloads {
			t.Errorf("%d downloads, %v", len(got), err)
		}
		for _, d := range got {
			if d.Received < 0 || d.Received > maxDownloadSize || d.Total < 0 || d.Total > maxDownloadSize || len(d.Ref) > maxDownloadRef {
				t.Errorf("%+v", d)
			}
		}
	})
}
