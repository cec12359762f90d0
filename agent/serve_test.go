package agent

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// PUT /debug/flags/v sets the verbosity of the agent, if enableDebugFlagsHandler is on.
func TestVerbosityCanBeSet(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		kc := DefaultConfiguration()
		kc.Authentication.Anonymous.Enabled, kc.EnableDebugFlagsHandler = new(true), new(on)
		kc.Authorization.Mode = kubelet.KubeletAuthorizationModeAlwaysAllow
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		certificate := httptest.NewTLSServer(nil)
		defer certificate.Close()
		set := ""
		a, err := New(Config{NodeName: "n", Kubelet: kc}, Deps{
			Runtime: struct {
				runtimeapi.RuntimeServiceClient
			}{}, Images: struct{ runtimeapi.ImageServiceClient }{}, Machine: SimulatedMachine(Shape{}),
			Log: slog.New(slog.DiscardHandler), API: l, TLS: &tls.Config{Certificates: certificate.TLS.Certificates}, Client: &rest.Config{Host: "http://127.0.0.1:1"},
			SetVerbosity: func(value string) error { set = value; return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.build(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.serverPart().run(ctx) }()
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://"+l.Addr().String()+"/debug/flags/v", strings.NewReader("4"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := certificate.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if on && (resp.StatusCode != 200 || set != "4") || !on && (resp.StatusCode == 200 || set != "") {
			t.Errorf("enableDebugFlagsHandler %v: %s %q, verbosity %q", on, resp.Status, text, set)
		}
	}
}
