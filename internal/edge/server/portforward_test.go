package server_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	//lint:ignore SA1019 the dialers of client-go return types of this package
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

func TestPortForward(t *testing.T) {
	t.Parallel()
	b, _ := streamBench(t)
	for _, path := range []string{"/portForward/ns/web", "/portForward/ns/web/uid-1"} {
		u, err := url.Parse(b.url + path)
		must(t, err)
		tr, up, err := spdy.RoundTripperFor(b.rest())
		must(t, err)
		overWebSocket, err := portforward.NewSPDYOverWebsocketDialer(u, b.rest())
		must(t, err)
		for kind, d := range map[string]httpstream.Dialer{
			"SPDY": spdy.NewDialer(up, &http.Client{Transport: tr}, "POST", u), "WebSocket": overWebSocket,
		} {
			t.Run(kind+path, func(t *testing.T) {
				t.Parallel()
				stop, ready := make(chan struct{}), make(chan struct{})
				fw, err := portforward.NewOnAddresses(d, []string{"127.0.0.1"}, []string{"0:8080", "0:9090"}, stop, ready, io.Discard, io.Discard)
				must(t, err)
				done := make(chan error, 1)
				go func() { done <- fw.ForwardPorts() }()
				select {
				case <-ready:
				case err := <-done:
					t.Fatalf("forward: %v", err)
				}
				ports, err := fw.GetPorts()
				must(t, err)
				for _, p := range ports {
					conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Local))
					must(t, err)
					text := strings.Repeat("x", 100_000)
					go func() {
						_, _ = io.WriteString(conn, text)
						_ = conn.(*net.TCPConn).CloseWrite()
					}()
					got, err := io.ReadAll(conn)
					must(t, err)
					if want := fmt.Sprintf("sb1:%d %s", p.Remote, text); string(got) != want {
						t.Errorf("got %d bytes %.40q, want %d", len(got), got, len(want))
					}
					conn.Close()
				}
				close(stop)
				if err := <-done; err != nil {
					t.Errorf("end: %v", err)
				}
			})
		}
	}
}

// A client that forwards ports over the channels of a WebSocket, without SPDY, names the ports in the query.
func TestPortForwardByChannels(t *testing.T) {
	t.Parallel()
	b, _ := streamBench(t)
	d := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Subprotocols: []string{"v4.channel.k8s.io"}} //nolint:gosec // test
	address := strings.Replace(b.url, "https", "wss", 1) + "/portForward/ns/web"
	header := http.Header{"Authorization": {"Bearer token-admin"}}
	conn, _, err := d.DialContext(t.Context(), address+"?port=80", header)
	must(t, err)
	defer conn.Close()
	must(t, conn.WriteMessage(websocket.BinaryMessage, []byte("\x00hello")))
	var got []byte
	for len(got) < len("sb1:80 hello") {
		_, m, err := conn.ReadMessage()
		must(t, err)
		if m[0] == 0 && !bytes.Equal(m, []byte{0, 80, 0}) { // the first message of a channel has the channel's port (80, low byte first)
			got = append(got, m[1:]...)
		}
	}
	if string(got) != "sb1:80 hello" {
		t.Errorf("got %q", got)
	}
	for _, query := range []string{"", "?port=0", "?port=x", "?port=70000", "?port="} {
		_, resp, err := d.DialContext(t.Context(), address+query, header)
		if err == nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %v %v", query, err, resp)
		}
	}
}
