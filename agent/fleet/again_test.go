package fleet_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
)

// A fleet whose own API server has just begun starts again at once, although its nodes renewed their leases a moment ago: nobody else can run it. A lease that was
// renewed since then shows that another process runs it.
func TestStartsAgainAtOnceOnItsOwnServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: 4}}}
		b := start(t, cfg)
		b.until(t, "all join", settled)
		b.end(t)
		time.Sleep(3 * time.Second)
		began := time.Now()
		cfg.ServerBegan = began
		b.run(t, cfg)
		b.until(t, "all join again", settled)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the fleet is back after %s", took)
		}
		time.Sleep(20 * time.Second)
		cfg.Client = b.kube.RESTConfig("fleet")
		other, err := fleet.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the fleet f runs already") {
			t.Errorf("a second process: %v", err)
		}
		b.end(t)
	})
}
