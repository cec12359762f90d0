package pleg

import (
	"context"
	"time"

	"github.com/wherry-node/wherry/internal/base/rounds"
)

const (
	// firstWait is the wait after the first subscription that fails. Each further one that fails doubles the wait, up to mostWait. A
	// subscription that lasted longer than mostWait was a good one, and the wait after it is firstWait again.
	firstWait = 100 * time.Millisecond
	mostWait  = 10 * time.Second
	// waitUnsupported is the wait if the runtime has no events. It may have some after an update.
	waitUnsupported = time.Minute
)

// subscription is the state of the subscription to the runtime's events. The generator's lock guards it.
type subscription struct {
	tries bool          // a call of Runtime.Watch has not ended yet
	open  bool          // the subscription has begun and has not ended
	wait  time.Duration // the wait after the next subscription that ends
	next  time.Time     // when to subscribe again
	said  bool          // the log says that the runtime has no events
}

// subscribeRound subscribes to the runtime's events, unless there is a subscription. It returns the time until the next try.
func (g *Generator) subscribeRound(ctx context.Context) time.Duration {
	began := time.Now()
	g.mu.Lock()
	wait := g.events.next.Sub(began)
	if g.events.tries || wait > 0 {
		defer g.mu.Unlock()
		if g.events.tries {
			return rounds.Never
		}
		return wait
	}
	g.events.tries = true
	g.mu.Unlock()
	g.flights.Add(1) // a call of Watch counts as one call in flight until it calls ended
	g.cfg.Runtime.Watch(ctx, g.subscribed, g.hint, func(err error) {
		defer g.flights.Done()
		g.unsubscribed(ctx, began, err)
	})
	return rounds.Never
}

// subscribed is called when a subscription to the runtime's events begins. It asks for a relist, which finds what has happened before.
func (g *Generator) subscribed() {
	if g.cfg.OnSubscribe != nil {
		g.cfg.OnSubscribe(true)
	}
	g.mu.Lock()
	g.events.open = true
	g.mu.Unlock()
	g.Relist()
}

// unsubscribed is called when a subscription that was tried at the time began has failed or ended. It asks for a relist, and for the next try.
func (g *Generator) unsubscribed(ctx context.Context, began time.Time, err error) {
	unsupported := g.cfg.Unsupported != nil && g.cfg.Unsupported(err)
	g.mu.Lock()
	lasted := time.Since(began) > mostWait
	wait, said := max(g.events.wait, firstWait), g.events.said
	switch {
	case unsupported:
		wait = waitUnsupported
	case lasted:
		wait = firstWait
	}
	g.events = subscription{wait: min(2*wait, mostWait), next: time.Now().Add(wait), said: said || unsupported}
	g.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if g.cfg.OnSubscribe != nil {
		g.cfg.OnSubscribe(false)
	}
	switch {
	case unsupported && !said:
		g.cfg.Log.Info("the runtime has no container events; relisting", "period", g.cfg.Period)
	case !unsupported && lasted:
		g.cfg.Log.Warn("container event stream broke; subscribing again", "err", err)
	}
	g.Relist()
	g.subscribe.Wake()
}
