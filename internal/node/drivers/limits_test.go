package drivers_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/csinode"
	"github.com/wherry-node/wherry/internal/edge/plugin"
	"github.com/wherry-node/wherry/internal/node/drivers"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// limited is a node in virtual time, with one CSI driver and its CSIDriver object.
type limited struct {
	*drivers.Drivers
	t         *testing.T
	kube      *simkube.Kube
	api       *kubeclient.Client
	driver    *simcsi.Driver
	cluster   *cluster
	attach    []string // what the node was told about the attachment of volumes
	republish []string
}

const limitedDriver = "disks.example.com"

// withLimits runs f on a node whose driver has registered with a limit of 10 volumes. period is the driver's
// nodeAllocatableUpdatePeriodSeconds; 0: none.
func withLimits(t *testing.T, period int64, f func(n *limited)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := simkube.New(simkube.Config{})
		api, err := kubeclient.New(k.RESTConfig("agent"))
		if err != nil {
			t.Fatal(err)
		}
		listener := bufconn.Listen(64 << 10)
		n := &limited{t: t, kube: k, api: api, cluster: &cluster{has: map[string]csinode.Driver{}},
			driver: simcsi.New(simcsi.Config{Name: limitedDriver, NodeID: "node-a", MaxVolumes: 10})}
		n.driver.ServeOn(listener)
		defer n.driver.Close()
		n.setPeriod(period)
		n.Drivers = drivers.New(drivers.Config{
			Cluster: n.cluster, Objects: api.CSIDrivers(), Log: slog.New(slog.DiscardHandler), Registered: func(string) {},
			Attach:    func(name string, required bool) { n.attach = append(n.attach, fmt.Sprint(name, " ", required)) },
			Republish: func(name string, required bool) { n.republish = append(n.republish, fmt.Sprint(name, " ", required)) },
			Dial:      func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
		})
		defer n.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		n.register()
		time.Sleep(time.Second)
		f(n)
	})
}

func (n *limited) register() {
	n.t.Helper()
	if err := n.Register(n.t.Context(), plugin.Plugin{Type: drivers.PluginType, Name: limitedDriver, Endpoint: "e", Versions: []string{"1.0.0"}}); err != nil {
		n.t.Fatal(err)
	}
}

// setPeriod sets nodeAllocatableUpdatePeriodSeconds of the driver; 0: none.
func (n *limited) setPeriod(seconds int64) {
	n.t.Helper()
	n.change(func(spec *storagev1.CSIDriverSpec) {
		if spec.NodeAllocatableUpdatePeriodSeconds = &seconds; seconds == 0 {
			spec.NodeAllocatableUpdatePeriodSeconds = nil
		}
	})
}

// change creates or changes the CSIDriver object of the driver.
func (n *limited) change(to func(*storagev1.CSIDriverSpec)) {
	n.t.Helper()
	client, err := kubernetes.NewForConfig(n.kube.RESTConfig("admin"))
	if err != nil {
		n.t.Fatal(err)
	}
	objects := client.StorageV1().CSIDrivers()
	o, err := objects.Get(n.t.Context(), limitedDriver, metav1.GetOptions{})
	missing := err != nil
	if missing {
		o = &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: limitedDriver}}
	}
	to(&o.Spec)
	if missing {
		_, err = objects.Create(n.t.Context(), o, metav1.CreateOptions{})
	} else {
		_, err = objects.Update(n.t.Context(), o, metav1.UpdateOptions{})
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// expect checks the limit of the driver in the cluster, and how often the driver was asked since it registered.
func (n *limited) expect(when string, limit int64, asked int) {
	n.t.Helper()
	d, _ := n.cluster.get(limitedDriver)
	if d.MaxVolumes != limit || d.NodeID != "node-a" {
		n.t.Errorf("%s: the cluster has %+v, want a limit of %d", when, d, limit)
	}
	if got := n.driver.Count("NodeGetInfo") - 1; got != asked {
		n.t.Errorf("%s: the driver was asked %d times, want %d", when, got, asked)
	}
}

// The node is told when volumes of a driver need no attachment any more, because the attach-detach controller then waits for the node to let them go.
func TestAttachmentThatIsNotNeededAnyMore(t *testing.T) {
	t.Parallel()
	withLimits(t, 0, func(n *limited) {
		required := false
		n.change(func(spec *storagev1.CSIDriverSpec) { spec.AttachRequired = &required })
		time.Sleep(time.Second)
		if want := []string{limitedDriver + " true", limitedDriver + " false"}; !slices.Equal(n.attach, want) {
			t.Errorf("told %q, want %q", n.attach, want)
		}
	})
}

// The node is told when a driver wants its volumes to be published again and again, or does not any more.
func TestRepublishingThatIsSwitchedOn(t *testing.T) {
	t.Parallel()
	withLimits(t, 0, func(n *limited) {
		required := true
		n.change(func(spec *storagev1.CSIDriverSpec) { spec.RequiresRepublish = &required })
		time.Sleep(time.Second)
		n.change(func(spec *storagev1.CSIDriverSpec) { spec.RequiresRepublish = nil })
		time.Sleep(time.Second)
		if want := []string{limitedDriver + " false", limitedDriver + " true", limitedDriver + " false"}; !slices.Equal(n.republish, want) {
			t.Errorf("told %q, want %q", n.republish, want)
		}
	})
}

// The limit of a driver in the CSINode follows the driver, as often as its CSIDriver object says.
func TestLimitFollowsTheDriver(t *testing.T) {
	t.Parallel()
	withLimits(t, 60, func(n *limited) {
		n.driver.SetMaxVolumes(7)
		time.Sleep(50 * time.Second)
		n.expect("before the period has passed", 10, 0)
		time.Sleep(10 * time.Second)
		n.expect("after a period", 7, 1)
		n.setPeriod(600)
		n.driver.SetMaxVolumes(5)
		time.Sleep(9 * time.Minute)
		n.expect("with a longer period", 7, 1)
		time.Sleep(2 * time.Minute)
		n.expect("after the longer period", 5, 2)
		n.setPeriod(0)
		time.Sleep(time.Hour)
		n.expect("without a period", 5, 2)
	})
}

// A driver whose CSIDriver object has no period is never asked again, and a period that the API does not allow is not used.
func TestLimitWithoutAPeriod(t *testing.T) {
	t.Parallel()
	withLimits(t, 0, func(n *limited) {
		n.Exceeded(limitedDriver)
		time.Sleep(time.Hour)
		n.expect("without a period", 10, 0)
		n.setPeriod(1)
		time.Sleep(time.Minute)
		if asked := n.driver.Count("NodeGetInfo") - 1; asked < 5 || asked > 7 {
			t.Errorf("with a period of a second, the driver was asked %d times in a minute, want once in 10 s", asked)
		}
	})
}

// After a volume could not be attached because the node has too many, the driver is asked at once. Many such failures are one question.
func TestLimitAfterAFailedAttachment(t *testing.T) {
	t.Parallel()
	withLimits(t, 3600, func(n *limited) {
		n.driver.SetMaxVolumes(3)
		time.Sleep(time.Minute)
		for range 5 {
			n.Exceeded(limitedDriver)
		}
		n.Exceeded("another.example.com")
		time.Sleep(time.Second)
		n.expect("after the failure", 3, 1)
		time.Sleep(time.Minute)
		n.expect("a minute later", 3, 1)
	})
}

// A driver that fails or hangs is asked once at a time, and the limit stays until it answers. A driver that has gone is not asked.
func TestLimitOfADriverThatFails(t *testing.T) {
	t.Parallel()
	withLimits(t, 10, func(n *limited) {
		n.driver.SetMaxVolumes(3)
		n.driver.SetFault("NodeGetInfo", &simcsi.Fault{Err: status.Error(codes.Internal, "the cloud does not answer")})
		time.Sleep(time.Minute)
		before := n.driver.Count("NodeGetInfo") - 1
		n.expect("while the driver fails", 10, before)
		hang := make(chan struct{})
		n.driver.SetFault("NodeGetInfo", &simcsi.Fault{Hang: hang})
		time.Sleep(time.Minute)
		if more := n.driver.Count("NodeGetInfo") - 1 - before; more > 2 {
			t.Errorf("a driver that hangs was asked %d times in a minute", more)
		}
		close(hang)
		n.driver.SetFault("NodeGetInfo", nil)
		time.Sleep(time.Minute)
		if d, _ := n.cluster.get(limitedDriver); d.MaxVolumes != 3 {
			t.Errorf("after the driver has recovered, the cluster has %+v", d)
		}
		n.Deregister(n.t.Context(), plugin.Plugin{Type: drivers.PluginType, Name: limitedDriver, Endpoint: "e"})
		time.Sleep(time.Second)
		asked := n.driver.Count("NodeGetInfo")
		time.Sleep(time.Hour)
		if more := n.driver.Count("NodeGetInfo") - asked; more != 0 {
			t.Errorf("a driver that is not registered was asked %d times", more)
		}
		if n := n.kube.Watches(); n != 0 {
			t.Errorf("%d watches of a node without drivers", n)
		}
	})
}
