package server_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// If a client sends terminal sizes for a command without a terminal, its later messages still arrive.
func TestTerminalSizeWithoutATerminal(t *testing.T) {
	t.Parallel()
	b, _ := streamBench(t)
	address := strings.Replace(b.url, "https", "wss", 1) + "/exec/ns/web/main?command=cat&input=1&output=1"
	d := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Subprotocols: []string{"v5.channel.k8s.io"}} //nolint:gosec // test
	conn, _, err := d.DialContext(t.Context(), address, http.Header{"Authorization": {"Bearer token-admin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, message := range []string{"\x04{\"Width\":1,\"Height\":1}", "\x04{\"Width\":2,\"Height\":2}", "\x00hello", "\xff\x00"} {
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	out := ""
	for !strings.Contains(out, "end after") {
		_, m, err := conn.ReadMessage()
		if err != nil {
			t.Fatalf("after %q: %v", out, err)
		}
		if len(m) > 1 && m[0] == 1 {
			out += string(m[1:])
		}
	}
	if !strings.HasPrefix(out, "hello") || !strings.HasSuffix(out, "end after 5]") {
		t.Errorf("got %q", out)
	}
}
