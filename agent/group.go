package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// part is one of the components of the agent. It runs until its context ends. A part has either run, which blocks, or begin, which
// returns at once, for a part that needs no goroutine of its own while it has nothing to do. The agent calls join, the result of begin,
// after the end of the context.
type part struct {
	name  string
	run   func(context.Context) error
	begin func(context.Context) (join func())
}

// runAll runs the parts until ctx ends or a part fails, then waits until all parts have ended. Parts end in any order, so
// each part must work without the others at the end.
func runAll(ctx context.Context, parts []part) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	var joins []func()
	for _, p := range parts {
		if p.begin != nil {
			joins = append(joins, p.begin(ctx))
			continue
		}
		wg.Go(func() {
			err := p.run(ctx)
			if err == nil && ctx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				mu.Lock()
				errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
				mu.Unlock()
			}
			cancel()
		})
	}
	<-ctx.Done()
	for _, join := range joins {
		join()
	}
	wg.Wait()
	return errors.Join(errs...)
}
