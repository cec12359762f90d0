package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/edge/heartbeat"
)

// pullTime counts the time of overlapping pulls once, and counts no other actions.
func TestPullTime(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	ended := func(what string, from, to int) timeline.Record {
		return timeline.Record{Kind: timeline.KindEnded, What: what, At: at(to), Took: at(to).Sub(at(from))}
	}
	for _, tt := range []struct {
		name    string
		records []timeline.Record
		want    time.Duration
	}{
		{"none", nil, 0},
		{"one", []timeline.Record{ended("pull-image a", 0, 10)}, 10 * time.Second},
		{"one after another", []timeline.Record{ended("pull-image a", 0, 10), ended("pull-image b", 20, 25)}, 15 * time.Second},
		{"at the same time", []timeline.Record{ended("pull-image a", 0, 10), ended("pull-image b", 5, 12)}, 12 * time.Second},
		{"one within another", []timeline.Record{ended("pull-image b", 5, 8), ended("pull-image a", 0, 10)}, 10 * time.Second},
		{"other actions", []timeline.Record{ended("run-sandbox", 0, 10), {Kind: timeline.KindBegan, What: "pull-image a", At: at(10)}}, 0},
	} {
		if got := pullTime(tt.records); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestStateful(t *testing.T) {
	t.Parallel()
	for want, source := range map[bool]v1.VolumeSource{
		false: {EmptyDir: &v1.EmptyDirVolumeSource{}},
		true:  {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}},
	} {
		if got := stateful(&v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: source}}}}); got != want {
			t.Errorf("%+v: %t", source, got)
		}
	}
}

// If the node reaches a stage of its start again, the first time stays.
func TestStartupStages(t *testing.T) {
	t.Parallel()
	var s startup
	s.reached(heartbeat.StageAttempt)
	first := s.times.Attempt
	s.reached(heartbeat.StageAttempt)
	if s.times.Attempt != first || first.IsZero() || !s.times.Registered.IsZero() {
		t.Errorf("%+v", s.times)
	}
	s.reached(heartbeat.StageRegistered)
	s.reached(heartbeat.StageReady)
	if s.times.Registered.IsZero() || s.times.Ready.IsZero() {
		t.Errorf("%+v", s.times)
	}
}

type answer struct{ err error }

func (a answer) Create(context.Context, int, metav1.CreateOptions) (int, error) { return 0, a.err }

// Each TokenReview or SubjectAccessReview is counted by the status code of the API server's answer.
func TestReviewsAreCounted(t *testing.T) {
	t.Parallel()
	for want, err := range map[int]error{
		201: nil,
		403: fmt.Errorf("ask: %w", apierrors.NewForbidden(v1.Resource("tokenreviews"), "", errors.New("no"))),
		0:   errors.New("connection refused"),
	} {
		got := -1
		_, _ = counted[int]{answer{err}, func(status int, _ time.Duration) { got = status }}.Create(t.Context(), 0, metav1.CreateOptions{})
		if got != want {
			t.Errorf("%v counts as %d, want %d", err, got, want)
		}
	}
}
