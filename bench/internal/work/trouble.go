package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// The functions in this file measure how long users wait under difficult conditions: while a large image is pulled, while all data from the
// API server is delayed, and on a node with many pods.

// pull starts and deletes pods while large images are pulled and unpacked.
func (s *Session) pull(ctx context.Context) error {
	registry, err := s.Rig.Registry(ctx)
	if err != nil {
		return err
	}
	pulls, end := context.WithCancel(ctx)
	defer end()
	begun, ended := make(chan struct{}), make(chan error, 1)
	// Only the goroutine below uses took and last, until it has sent a value to the channel ended.
	var took []time.Duration
	var last string
	go func() {
		var err error
		last, err = s.pullAgain(pulls, registry, begun, func(d time.Duration) { took = append(took, d) })
		if pulls.Err() != nil {
			err = nil // canceling the last pull is no error
		}
		ended <- err
	}()
	<-begun
	what := "an image that is pulled"
	if err = rig.Sleep(ctx, time.Second); err == nil {
		err = s.sequence(ctx, "besidepull", s.Plan.Sequence, "one pod beside "+what+", create to Ready", "one pod beside "+what+", delete to gone", nil)
	}
	end()
	err = errors.Join(err, <-ended)
	for _, d := range took {
		s.Samples.took("pod with a large image, create to Ready", d)
	}
	err = errors.Join(err, s.anew(ctx))
	if last != "" {
		err = errors.Join(err, s.CRI.RemoveImage(context.WithoutCancel(ctx), last))
	}
	return err
}

// pullAgain creates one pod after another, each with a new image that the runtime has to pull, until ctx ends. It closes begun after the
// first pod is created, and returns the last image. It returns an error if a pod becomes Ready although its image was not pulled
// completely.
func (s *Session) pullAgain(ctx context.Context, registry *rig.Registry, begun chan<- struct{}, took func(time.Duration)) (image string, err error) {
	for i := 0; ; i++ {
		if image, err = registry.Next(); err != nil {
			if i == 0 {
				close(begun)
			}
			return image, err
		}
		name := fmt.Sprintf("puller-%d-%d", s.round, i)
		began := time.Now()
		err = s.create(ctx, name, func(p *v1.Pod) {
			c := &p.Spec.Containers[0]
			c.Image, c.ImagePullPolicy, c.Command = image, v1.PullAlways, nil
		})
		if i == 0 {
			close(begun)
		}
		if err != nil {
			return image, err
		}
		ready, err := rig.Within(ctx, 2*time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Ready(ctx, []string{name}) })
		if err != nil {
			return image, err
		}
		if err := registry.Pulled(image); err != nil {
			return image, err
		}
		took(ready[name].Sub(began))
		if err := s.deleteNow(ctx, name); err != nil {
			return image, err
		}
		if err := s.CRI.RemoveImage(ctx, image); err != nil {
			return image, err
		}
	}
}

// slowAnswer is how late all data of the API server arrives.
const slowAnswer = 200 * time.Millisecond

// slow starts and deletes pods while all data of the API server is late.
func (s *Session) slow(ctx context.Context) (err error) {
	proxy, err := s.Rig.Delay(slowAnswer)
	if err != nil {
		return err
	}
	defer proxy.Close()
	if err := s.stop(ctx); err != nil {
		return err
	}
	if err := s.Agent.Redirect(proxy.URL); err != nil {
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, s.stop(ctx), s.Agent.Redirect(""), s.anew(ctx))
	}()
	took, err := s.start(ctx, s.Rig.Socket)
	if err != nil {
		return err
	}
	what := "while the API server answers late"
	s.Samples.took("start to Ready "+what, took)
	if err := s.sequence(ctx, "slow", s.Plan.Sequence, "one pod "+what+", create to Ready", "one pod "+what+", delete to gone", nil); err != nil {
		return err
	}
	return s.atOnce(ctx, s.named("slowmany", s.Plan.Pods/2), "pods at once "+what+", create to Ready", nil)
}

// crowd starts many pods in two halves. After each half it measures the idle agent and how long a restart takes. The difference between the
// halves shows how the cost grows with the number of pods.
func (s *Session) crowd(ctx context.Context) error {
	names := s.named("crowd", s.Plan.Dense)
	half := len(names) / 2
	for _, part := range []struct {
		what  string
		names []string
	}{{"crowded, half", names[:half]}, {"crowded, all", names[half:]}} {
		if err := s.atOnce(ctx, part.names, part.what+", create to Ready", nil); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
		if err := s.measureAtRest(ctx, part.what); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return s.allGone(ctx, names, "crowded, delete to gone")
}

// measureAtRest measures an agent while its pods run and nothing else happens. Then it restarts the agent and measures the time until the
// node is Ready.
func (s *Session) measureAtRest(ctx context.Context, what string) error {
	if err := rig.Sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	if _, err := s.cpu(ctx, what+", CPU at rest", s.Plan.Rest); err != nil {
		return err
	}
	if err := s.memory(what); err != nil {
		return err
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	took, err := s.start(ctx, s.Rig.Socket)
	if err != nil {
		return err
	}
	s.Samples.took(what+", restart to Ready", took)
	return nil
}
