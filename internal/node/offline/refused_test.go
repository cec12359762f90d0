package offline

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/lastknown"
	"github.com/wherry-node/wherry/internal/edge/objects"
)

// recorded is a node with an empty record of an hour ago, and counts how often its pods are recalled.
type recorded struct{ recalls int }

func (*recorded) Load(now time.Time) (*lastknown.Record, error) {
	return &lastknown.Record{At: now.Add(-time.Hour)}, nil
}
func (*recorded) Write([]lastknown.Entry, time.Time) error { return nil }
func (*recorded) List() []*v1.Pod                          { return nil }
func (*recorded) Get(types.UID) (*v1.Pod, pod.Source)      { return nil, pod.SourceNone }
func (r *recorded) Recall(pod.Source, []*v1.Pod) bool      { r.recalls++; return true }

// known are the objects of a recorded node.
type known struct{}

func (known) State([]string) objects.State { return objects.State{} }
func (known) Recall(objects.State)         {}
func (known) Answered()                    {}

// A node without an identity, whose API server answers and does not give it one, does not start from the record: its pods may run elsewhere by now. It
// does so when the API server stops to answer.
func TestANodeThatIsNotAcceptedDoesNotStartFromTheRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{}
		k := New(Config{
			NodeName: "n", Store: r, Pods: r, Objects: known{}, Node: func() *v1.Node { return nil }, After: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.Run(ctx) }()
		k.Refused(errors.New("the certificate request csr-1 is not granted: waits for approval"))
		time.Sleep(time.Hour)
		if s := k.Status(); r.recalls != 0 || !strings.Contains(s.Problem, "this node has no identity: the certificate request csr-1 is not granted") {
			t.Errorf("recalled %d times, problem %q", r.recalls, s.Problem)
		}
		k.Refused(nil)
		time.Sleep(againEvery)
		synctest.Wait()
		if s := k.Status(); r.recalls != 1 || s.Problem != "" || s.Since.IsZero() {
			t.Errorf("without an answer: recalled %d times, %+v", r.recalls, s)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
