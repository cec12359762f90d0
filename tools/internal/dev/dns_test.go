package dev

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The template gives correct objects of the DNS server. The server forwards requests only if the machine has DNS servers that pods can
// reach.
func TestDNSObjects(t *testing.T) {
	t.Parallel()
	for _, forward := range []bool{true, false} {
		var b bytes.Buffer
		if err := dnsObjects.Execute(&b, map[string]any{"Address": dnsAddress, "Image": "i:1", "Forward": forward}); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if got := strings.Contains(text, "\n        forward . /etc/resolv.conf\n"); got != forward {
			t.Errorf("forwards: %v, want %v:\n%s", got, forward, text)
		}
		if !strings.Contains(text, "\n  clusterIP: "+dnsAddress+"\n") || !strings.Contains(text, "\n          image: i:1\n") {
			t.Errorf("not the address that pods have, or not the image:\n%s", text)
		}
	}
}

func TestHasNameserver(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, "search example.org\n": false, "nameserver 127.0.0.53\n": false, "nameserver ::1": false, "#nameserver 10.0.0.1": false,
		"nameserver 127.0.0.53\nnameserver 10.0.0.1\n": true, "nameserver\t2001:db8::1": true,
	} {
		file := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := hasNameserver(file); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if hasNameserver("/nowhere/resolv.conf") {
		t.Error("a file that is not there names a server")
	}
}
