package fleettop

import (
	"context"
	"io"
	"math"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/cli/fleetctl"
	"github.com/wherry-node/wherry/internal/cli/screen"
)

// patience bounds one request to the fleet. After that the screen says that the fleet does not answer.
const patience = 5 * time.Second

// Top is the command `wherry fleet top`.
type Top struct {
	fleetctl.Client
	Every time.Duration
	// Count is how many times the state is printed as text; 0: the state is shown on the whole terminal, or printed until the fleet ends.
	Count int
	// Getenv returns the variables of the environment.
	Getenv func(string) string
}

// Run shows the fleet until the user ends that. in and out may be a terminal.
func (o *Top) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	text := fleetctl.Top{Client: o.Client, Every: o.Every, Count: o.Count}
	if err := text.Check(); err != nil {
		return err
	}
	terminal := screen.Terminal(out)
	mode, ok := screen.ModeOf(o.Getenv)
	if terminal == nil || !ok || o.Count > 0 {
		return text.Run(ctx, out)
	}
	first, err := o.watch(ctx) // before the terminal changes, so that a fleet that does not run is an ordinary error
	if err != nil {
		return err
	}
	return screen.Show(ctx, mode, in, terminal, func(ctx context.Context, s *screen.Screen) error {
		f := follower{top: o, screen: s, history: &History{}, answers: make(chan answer, 1)}
		f.view = View{Mode: mode, Past: f.history, Every: o.Every}
		f.take(answer{top: first})
		return f.follow(ctx)
	})
}

// watch asks the fleet for its state.
func (o *Top) watch(ctx context.Context) (fleetctl.Watched, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return o.Watch(ctx, asked)
}

// answer is an answer of the fleet, or why there is none.
type answer struct {
	top fleetctl.Watched
	err error
}

// follower shows the fleet on the screen. Only the goroutine of follow uses it.
type follower struct {
	top     *Top
	screen  *screen.Screen
	history *History
	view    View
	answers chan answer
	asking  bool      // a request is in flight
	silent  time.Time // since when the fleet does not answer; zero: it answers
}

// follow draws the screen until ctx ends or the user presses q.
func (f *follower) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	tick := time.NewTicker(f.top.Every)
	defer tick.Stop()
	for {
		if err := f.draw(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if !f.view.Paused && !f.asking {
				f.asking = true
				group.Go(func() {
					top, err := f.top.watch(ctx)
					f.answers <- answer{top, err}
				})
			}
		case a := <-f.answers:
			f.asking = false
			f.take(a)
		case e := <-f.screen.Events:
			if !f.press(e.Key) {
				return nil
			}
		}
	}
}

// draw draws the screen.
func (f *follower) draw() error {
	f.view.Size = f.screen.Size()
	if !f.silent.IsZero() {
		f.view.Silent = time.Since(f.silent)
	}
	var lines []screen.Line
	lines, f.view.Scroll = Draw(&f.view)
	return f.screen.Draw(lines, f.view.Size)
}

// take notes an answer. Without one, what is shown stays.
func (f *follower) take(a answer) {
	if a.err != nil {
		if f.view.Lost = a.err.Error(); f.silent.IsZero() {
			f.silent = time.Now()
		}
		return
	}
	f.view.Lost, f.silent = "", time.Time{}
	f.view.Now = &a.top
	f.history.Add(&a.top.State)
}

// page is by how many rows the keys for pages scroll.
const page = 10

// press does what a key is for. It returns false if the user wants to end.
func (f *follower) press(key screen.Key) bool {
	v := &f.view
	switch key {
	case "q", "Q", screen.KeyInterrupt:
		return false
	case "p", "P", " ":
		v.Paused = !v.Paused
	case screen.KeyTab, screen.KeyRight:
		v.List, v.Scroll = (v.List+1)%lists, 0
	case screen.KeyBackTab, screen.KeyLeft:
		v.List, v.Scroll = (v.List+lists-1)%lists, 0
	case screen.KeyUp, "k":
		v.Scroll--
	case screen.KeyDown, "j":
		v.Scroll++
	case screen.KeyPageUp:
		v.Scroll -= page
	case screen.KeyPageDown:
		v.Scroll += page
	case screen.KeyHome:
		v.Scroll = 0
	case screen.KeyEnd:
		v.Scroll = math.MaxInt // Draw takes the last page
	}
	return true
}
