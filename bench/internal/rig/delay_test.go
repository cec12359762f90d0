package rig

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The function later delivers every byte unchanged and exactly 200 ms after it was sent. The delays of several chunks do not add up.
func TestLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		got, into := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- later(into, client, 200*time.Millisecond)
			_ = into.Close()
		}()
		began := time.Now()
		go func() {
			for i := range 10 {
				if _, err := server.Write([]byte{byte(i)}); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			_ = server.Close()
		}()
		one := make([]byte, 1)
		for i := range 10 {
			if _, err := io.ReadFull(got, one); err != nil || one[0] != byte(i) {
				t.Fatalf("byte %d is %d: %v", i, one[0], err)
			}
			if at, want := time.Since(began), time.Duration(200+10*i)*time.Millisecond; at != want {
				t.Errorf("byte %d came after %v, want %v", i, at, want)
			}
		}
		if n, err := got.Read(one); n != 0 || err != io.EOF {
			t.Errorf("%d bytes after the end: %v", n, err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The function later returns an error when the client disconnects while the server keeps its connection open and sends no more data.
func TestLaterEndsWithItsReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		got, into := io.Pipe()
		_ = got.Close()
		ended := make(chan error, 1)
		go func() { ended <- later(into, client, time.Second) }()
		if _, err := server.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	})
}

func TestDelay(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	data := make([]byte, 1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := io.CopyN(io.Discard, c, 7); err == nil {
			_, _ = c.Write(data)
		}
	}()
	const by = 50 * time.Millisecond
	d, err := delay(l.Addr().String(), by)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	if _, err := c.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came, want the %d that were sent: %v", len(got), len(data), err)
	}
	if took := time.Since(began); took < by {
		t.Errorf("the answer came after %v", took)
	}
}

func TestRedirected(t *testing.T) {
	t.Parallel()
	const config = "clusters:\n- cluster:\n    certificate-authority: /a\n    server: https://127.0.0.1:1\n  name: c\n"
	got, err := redirected([]byte(config), "https://127.0.0.1:2")
	if want := strings.Replace(config, ":1\n", ":2\n", 1); err != nil || string(got) != want {
		t.Errorf("%v:\n%s", err, got)
	}
	for _, bad := range []string{"", config + config} {
		if _, err := redirected([]byte(bad), "https://x"); err == nil {
			t.Errorf("taken:\n%s", bad)
		}
	}
}
