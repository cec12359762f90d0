package differ

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// living is the run of a case on one agent: the pod, and what happens to it.
type living struct {
	run  *Runner
	side *side
	c    *Case
	name string // the pod's name in the API
	file string // the name of the static pod in its manifest
	t    *Trace
}

func (l *living) pods() typed.PodInterface { return l.run.rig.Client.CoreV1().Pods(rig.Namespace) }

// live creates the pod, does to it what the case says at the times that the case says, and deletes it.
func (l *living) live(ctx context.Context) error {
	first, last := Act{Do: "create"}, Act{At: l.c.For, Do: Delete, Grace: -1}
	if l.c.Kind == Static {
		first, last = Act{Do: WriteFile}, Act{At: l.c.For, Do: RemoveFile}
	}
	if err := l.act(ctx, first); err != nil {
		return fmt.Errorf("create the pod: %w", err)
	}
	if err := l.begins(ctx); err != nil {
		return err
	}
	exists := true
	for _, a := range slices.Concat(l.c.Acts, []Act{last}) { // Concat makes a new slice, because both agents' runs use the case at the same time
		if !exists && a.At == l.c.For {
			continue
		}
		if err := sleepUntil(ctx, l.t.Created.Add(a.At)); err != nil {
			return err
		}
		switch {
		case a.Do == Delete && exists, a.Do == RemoveFile:
			l.t.Deleted, exists = time.Now(), false
		case a.Do == WriteFile:
			exists = true
		}
		if err := l.act(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.Do, err)
		}
	}
	return l.ends(ctx)
}

// begins waits until the agent creates the pod's sandbox, at most 20 s, because a pod may get no sandbox. The times of all acts count
// from then on. So an agent that is busy and begins later still gets each act at the same point of the pod's life.
func (l *living) begins(ctx context.Context) error {
	for deadline := time.Now().Add(20 * time.Second); ; {
		if calls := l.side.runtime.Calls(l.name); len(calls) > 0 {
			l.t.Created = calls[0].At
			return nil
		}
		if time.Now().After(deadline) {
			l.t.Created = deadline
			return nil
		}
		if err := sleepUntil(ctx, time.Now().Add(100*time.Millisecond)); err != nil {
			return err
		}
	}
}

// ends waits until the pod has left the API and the runtime, and until the last events have come. It does not wait for the last sandboxes
// of upstream's kubelet, because the kubelet removes them only once a minute.
func (l *living) ends(ctx context.Context) error {
	for deadline := time.Now().Add(goneWithin); ; {
		l.run.mu.Lock()
		gone, ended, last := l.t.Gone, later(l.t.Ended, l.t.Deleted), lastEvents+min(2*l.run.lags[l.side.agent.Node], goneWithin/2)
		l.run.mu.Unlock()
		if !l.side.upstream {
			l.t.Left = l.side.runtime.Left(l.name)
		}
		if gone && len(l.t.Left) == 0 && time.Since(ended) > last || time.Now().After(deadline) {
			return nil
		}
		if err := sleepUntil(ctx, time.Now().Add(500*time.Millisecond)); err != nil {
			return err
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (l *living) act(ctx context.Context, a Act) error {
	var err error
	patch := func(kind types.PatchType, sub string, format string, args ...any) {
		subs := []string{sub}
		if sub == "" {
			subs = nil
		}
		_, err = l.pods().Patch(ctx, l.name, kind, fmt.Appendf(nil, format, args...), metav1.PatchOptions{}, subs...)
	}
	switch a.Do {
	case "create":
		p := &v1.Pod{ObjectMeta: l.c.meta(l.name), Spec: *l.c.Spec.DeepCopy()}
		p.Spec.NodeName = l.side.agent.Node
		if _, err := l.pods().Create(ctx, p, metav1.CreateOptions{}); apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		} else if err != nil {
			return err
		}
	case Delete, DeleteMirror:
		opts := metav1.DeleteOptions{}
		if a.Grace >= 0 {
			opts.GracePeriodSeconds = &a.Grace
		}
		err = l.pods().Delete(ctx, l.name, opts)
	case SetImage:
		patch(types.StrategicMergePatchType, "", `{"spec":{"containers":[{"name":%q,"image":%q}]}}`, a.Container, a.Value)
	case Resize:
		patch(types.StrategicMergePatchType, "resize", `{"spec":{"containers":[{"name":%q,"resources":{"requests":{"cpu":%q}}}]}}`, a.Container, a.Value)
	case Debug:
		patch(types.StrategicMergePatchType, "ephemeralcontainers",
			`{"spec":{"ephemeralContainers":[{"name":%q,"image":%q,"command":["server"],"imagePullPolicy":"IfNotPresent"}]}}`, a.Container, image)
	case LoseSandbox:
		err = l.side.runtime.LoseSandbox(ctx, l.name)
	case WriteFile:
		err = l.writeFile(a)
	case RemoveFile:
		if err = os.Remove(l.path()); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsConflict(err) {
		return nil // the pod is gone, or the API allows no change any more
	}
	return err
}

func (l *living) path() string { return filepath.Join(l.side.manifests, l.file+".json") }

// writeFile writes the manifest of a static pod into a new file and renames it, as an editor does.
func (l *living) writeFile(a Act) error {
	p := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: l.c.meta(l.file), Spec: *l.c.Spec.DeepCopy()}
	p.Namespace = rig.Namespace
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == a.Container {
			p.Spec.Containers[i].Image = a.Value
		}
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	draft := filepath.Join(l.side.manifests, "."+l.file)
	if err := os.WriteFile(draft, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, l.path())
}
