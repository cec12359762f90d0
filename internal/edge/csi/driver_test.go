package csi

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// hostile is a driver that returns any answers that a test chooses, also invalid ones.
type hostile struct {
	csi.UnimplementedNodeServer
	info    *csi.NodeGetInfoResponse
	publish func(ctx context.Context, volume string) error
	caps    int // number of capabilities that the driver reports
	called  Called
}

func (h *hostile) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	out := &csi.NodeGetCapabilitiesResponse{}
	for range h.caps {
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}})
	}
	return out, nil
}

func (h *hostile) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return h.info, nil
}

func (h *hostile) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, h.publish(ctx, r.VolumeId)
}

// connect starts the driver h and returns a client of it. The test's cleanup ends both.
func connect(t *testing.T, h *hostile) *Driver {
	t.Helper()
	l := bufconn.Listen(64 << 10)
	s := grpc.NewServer()
	csi.RegisterNodeServer(s, h)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	d, err := New("disks.example.com", "", func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }, h.called)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close()
		s.Stop()
		<-ended
	})
	return d
}

func segments(n int, value string) *csi.Topology {
	m := map[string]string{}
	for i := range n {
		m[strings.Repeat("k", i+1)] = value
	}
	return &csi.Topology{Segments: m}
}

func TestAnswersAboutTheNodeHaveBounds(t *testing.T) {
	t.Parallel()
	good := &csi.NodeGetInfoResponse{NodeId: strings.Repeat("i", maxNodeID), MaxVolumesPerNode: -1, AccessibleTopology: segments(1, strings.Repeat("v", maxTopology-1))}
	for _, c := range []struct {
		name, err string
		driver    hostile
	}{
		{"the longest answers", "", hostile{info: good, caps: 1}},
		{"no node ID", "node_id has 0 bytes", hostile{info: &csi.NodeGetInfoResponse{}}},
		{"a long node ID", "node_id has 257 bytes", hostile{info: &csi.NodeGetInfoResponse{NodeId: strings.Repeat("i", maxNodeID+1)}}},
		{"a long topology value", "accessible_topology has 4097 bytes", hostile{info: &csi.NodeGetInfoResponse{NodeId: "n", AccessibleTopology: segments(1, strings.Repeat("v", maxTopology))}}},
		{"many topology keys", "accessible_topology has", hostile{info: &csi.NodeGetInfoResponse{NodeId: "n", AccessibleTopology: segments(100, "v")}}},
		{"an answer of megabytes", "received message larger than max", hostile{info: &csi.NodeGetInfoResponse{NodeId: strings.Repeat("i", maxAnswer)}}},
		{"very many capabilities", "NodeGetCapabilities: grpc: received message larger than max", hostile{info: good, caps: maxAnswer / 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := connect(t, &c.driver)
			info, err := d.Ask(t.Context())
			switch {
			case c.err == "" && (err != nil || info.NodeID != good.NodeId || !d.Can().Stage):
				t.Errorf("%+v, %v", info, err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestTheTextOfAnErrorIsBoundedAndPrintable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"long", strings.Repeat("x", maxHeaders/2), "NodePublishVolume: xxxx"},
		{"longer than all headers may be", strings.Repeat("x", 2*maxHeaders), "RST_STREAM"},
		{"with control characters", "a\x1b[2Jb", "NodePublishVolume: a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := connect(t, &hostile{publish: func(context.Context, string) error { return status.Error(codes.Internal, c.text) }})
			err := d.Publish(t.Context(), &csi.NodePublishVolumeRequest{Secrets: map[string]string{"key": "pa55word"}})
			if err == nil {
				t.Fatal("no error")
			}
			text := err.Error()
			if !strings.Contains(text, c.want) || len(text) > pod.TextBytes+100 || strings.ContainsRune(text, '\x1b') || strings.Contains(text, "pa55word") {
				t.Errorf("%d bytes: %.300q, want %q", len(text), text, c.want)
			}
		})
	}
}

func TestACallThatHangsEndsAfterTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var answers atomic.Bool
		d := connect(t, &hostile{publish: func(ctx context.Context, _ string) error {
			if !answers.Load() {
				<-ctx.Done()
				time.Sleep(time.Second) // answer after the deadline: an answer at exactly the deadline could come before or after the timeout
			}
			return nil
		}})
		began := time.Now()
		err := d.Publish(t.Context(), &csi.NodePublishVolumeRequest{})
		if want := "CSI driver disks.example.com, NodePublishVolume: no answer within 2m0s"; err == nil || err.Error() != want || time.Since(began) != Timeout {
			t.Errorf("after %v: %v, want %s", time.Since(began), err, want)
		}
		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Publish(ctx, &csi.NodePublishVolumeRequest{}); err == nil || time.Since(began) != time.Second {
			t.Errorf("a call with a deadline of its own: %v after %v", err, time.Since(began))
		}
		answers.Store(true)
		if err := d.Publish(t.Context(), &csi.NodePublishVolumeRequest{}); err != nil {
			t.Errorf("the call after those that hung: %v", err)
		}
		time.Sleep(2 * time.Second) // wait until the driver has answered the calls that timed out
	})
}

// A driver learns the deadline of a call with the call. If it answers at that instant that the deadline is over, that is no answer, too, also where
// its message is quicker than the node's own timer.
func TestACallWhoseDeadlineTheDriverTells(t *testing.T) {
	t.Parallel()
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			d := connect(t, &hostile{publish: func(ctx context.Context, _ string) error {
				deadline, _ := ctx.Deadline()
				time.Sleep(time.Until(deadline))
				return status.Error(codes.DeadlineExceeded, "context deadline exceeded")
			}})
			err := d.Publish(t.Context(), &csi.NodePublishVolumeRequest{})
			if want := "NodePublishVolume: no answer within 2m0s"; err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// If a driver answers a call after the call has timed out, the answer is not used for the next call.
func TestALateAnswerHasNoEffect(t *testing.T) {
	t.Parallel()
	called, late, answered := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	d := connect(t, &hostile{publish: func(_ context.Context, volume string) error {
		called <- struct{}{}
		<-late
		if volume == "first" {
			defer close(answered)
			return nil
		}
		<-answered
		return status.Error(codes.Internal, "the second volume is broken")
	}})
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error), make(chan error)
	go func() { first <- d.Publish(ctx, &csi.NodePublishVolumeRequest{VolumeId: "first"}) }()
	<-called
	cancel()
	if err := <-first; err == nil {
		t.Error("a call that was canceled has no error")
	}
	go func() { second <- d.Publish(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "second"}) }()
	<-called
	close(late)
	if err := <-second; err == nil || !strings.HasSuffix(err.Error(), "NodePublishVolume: the second volume is broken") {
		t.Errorf("error %v", err)
	}
}

// If a driver itself answers with the code DeadlineExceeded, the error does not say that the driver gave no answer.
func TestADriverThatAnswersDeadlineExceeded(t *testing.T) {
	t.Parallel()
	d := connect(t, &hostile{publish: func(context.Context, string) error { return status.Error(codes.DeadlineExceeded, "the array is slow") }})
	if err := d.Publish(t.Context(), &csi.NodePublishVolumeRequest{}); err == nil || !strings.HasSuffix(err.Error(), "NodePublishVolume: the array is slow") {
		t.Errorf("error %v", err)
	}
}

func TestCallsFailAfterClose(t *testing.T) {
	t.Parallel()
	called := make(chan struct{})
	d := connect(t, &hostile{publish: func(ctx context.Context, _ string) error {
		close(called)
		<-ctx.Done()
		return nil
	}})
	failed := make(chan error)
	go func() { failed <- d.Publish(t.Context(), &csi.NodePublishVolumeRequest{}) }()
	<-called
	d.Close()
	if err := <-failed; err == nil {
		t.Error("a call in flight has no error")
	}
}

// A driver that registers again may be the process that still works on a call of its first connection. The call goes on.
func TestACallInFlightOutlivesRetire(t *testing.T) {
	t.Parallel()
	called, goOn := make(chan struct{}), make(chan struct{})
	d := connect(t, &hostile{publish: func(ctx context.Context, _ string) error {
		called <- struct{}{}
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	ended := make(chan error)
	go func() { ended <- d.Publish(t.Context(), &csi.NodePublishVolumeRequest{}) }()
	<-called
	d.Retire()
	close(goOn)
	if err := <-ended; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := d.Publish(t.Context(), &csi.NodePublishVolumeRequest{}); err == nil {
		t.Error("the connection is still open after the last call")
	}
}

// Each call is reported with the name of its status code. A driver may answer with any number, so that numbers that gRPC does not define
// have one name together.
func TestCallsAreReportedByTheirCodes(t *testing.T) {
	t.Parallel()
	var got []string
	answers := []error{nil, status.Error(codes.FailedPrecondition, "no"), status.Error(codes.Code(1234), "no"), status.Error(codes.Code(99999), "no")}
	h := &hostile{called: func(driver, method, code string, _ time.Duration) { got = append(got, driver+" "+method+" "+code) }}
	h.publish = func(context.Context, string) error { return answers[len(got)] }
	d := connect(t, h)
	for range answers {
		_ = d.Publish(t.Context(), &csi.NodePublishVolumeRequest{})
	}
	const call = "disks.example.com NodePublishVolume "
	if want := []string{call + "OK", call + "FailedPrecondition", call + "Unknown", call + "Unknown"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}
