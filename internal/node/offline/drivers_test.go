package offline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/internal/edge/csinode"
)

// list records the changes of a list of drivers. The first calls fail.
type list struct {
	fails int
	calls []string
}

func (l *list) call(what string) error {
	if l.fails > 0 {
		l.fails--
		return errors.New("no answer")
	}
	l.calls = append(l.calls, what)
	return nil
}

func (l *list) Put(_ context.Context, d csinode.Driver) error {
	return l.call(fmt.Sprintf("put %s %s", d.Name, d.NodeID))
}
func (l *list) Remove(_ context.Context, name string) error { return l.call("remove " + name) }

// A driver can be used while the node is offline. When the API server answers, it gets the newest state of each driver, and no change that
// a later one has replaced.
func TestDriversOfAnOfflineNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		api := &list{}
		d := (&Keeper{}).Drivers(api).(*keptDrivers)
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		must(d.Put(ctx, csinode.Driver{Name: "before"}))
		d.setOffline(true)
		must(d.Put(ctx, csinode.Driver{Name: "a", NodeID: "1"}))
		must(d.Put(ctx, csinode.Driver{Name: "a", NodeID: "2"}))
		must(d.Put(ctx, csinode.Driver{Name: "gone"}))
		must(d.Remove(ctx, "gone"))
		must(d.Put(ctx, csinode.Driver{Name: "again", NodeID: "old"}))
		if len(api.calls) != 1 {
			t.Errorf("calls while the node is offline: %q", api.calls)
		}
		d.setOffline(false)
		must(d.Put(ctx, csinode.Driver{Name: "again", NodeID: "new"}))
		api.fails = 3
		d.settle(ctx)
		slices.Sort(api.calls)
		if diff := cmp.Diff([]string{"put a 2", "put again new", "put before ", "remove gone"}, api.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}
