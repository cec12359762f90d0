package podworker

import (
	"context"
	"log/slog"
	"time"

	"github.com/wherry-node/wherry/internal/core/bands"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/core/timeline"
)

// log writes one log line per executed action.
func (w *Worker) log(job pod.Job, o *pod.Outcome) {
	level := slog.LevelInfo
	if o.Err != nil && !o.Canceled {
		level = slog.LevelWarn
	}
	if !w.cfg.Log.Enabled(context.Background(), level) {
		return
	}
	args := []any{"op", job.Action.Op.String(), "pod", job.Ref}
	if job.Action.Container != "" {
		args = append(args, "container", job.Action.Container)
	}
	args = append(args, "why", string(job.Action.Why), "took", o.Ended.Sub(o.Began).Round(time.Millisecond))
	if o.ID != "" {
		args = append(args, "id", o.ID)
	}
	switch {
	case o.Err != nil:
		args = append(args, "reason", o.Reason, "err", o.Err)
	case o.Message != "":
		args = append(args, "result", o.Message)
	}
	w.cfg.Log.Log(context.Background(), level, "action", args...)
}

// record adds a turn to the timeline, unless its only decision was to continue to wait.
func (w *Worker) record(cause string, now time.Time, band timeline.Band, plan *decide.Plan) {
	text := string(plan.Why)
	if w.turned && plan.Phase == w.lastPhase && band == w.lastBand && text == w.lastText && len(plan.Do) == 0 && len(plan.Cancel) == 0 {
		return
	}
	w.turned, w.lastPhase, w.lastBand, w.lastText = true, plan.Phase, band, text
	w.ring.Add(timeline.Record{At: now, Kind: timeline.KindDecision, Cause: cause, What: plan.Phase.String(), Why: text, Band: band})
	for _, a := range plan.Cancel {
		w.ring.Add(timeline.Record{At: now, Kind: timeline.KindBegan, What: "cancel " + a.String()})
	}
	for _, a := range plan.Do {
		why := string(a.Why)
		w.ring.Add(timeline.Record{At: now, Kind: timeline.KindBegan, What: a.Key().String(), Why: why})
	}
}

// export returns a copy of the turn's input and plan if a caller of AskExport waits for it, otherwise nil. If something went wrong in the
// turn, export also passes a copy to Config.WentWrong. Most turns are not copied.
func (w *Worker) export(in *decide.Input, plan *decide.Plan, look *glance) *replay.Turn {
	wrong := ""
	if w.cfg.WentWrong != nil {
		wrong = replay.Wrong(in, plan, look.outcomes)
	}
	if !look.export && wrong == "" {
		return nil
	}
	t := replay.Of(w.ref, in)
	t.Decided(plan)
	if wrong != "" {
		recorded := *t
		recorded.Wrong = wrong
		w.cfg.WentWrong(&recorded)
	}
	if !look.export {
		return nil
	}
	return t
}

// band returns what the pod as a whole does after a turn, for example BandStarting. If the inspection is older than the outcome of the
// newest action, and the phase is unchanged, then band returns the same as in the previous turn.
func (w *Worker) band(in *decide.Input, plan *decide.Plan) timeline.Band {
	if in.Stale && w.lastBand != timeline.BandNone && plan.Phase == w.lastPhase {
		return w.lastBand
	}
	return bands.Now(in, plan)
}

func (w *Worker) recordOutcome(o pod.Outcome) {
	r := timeline.Record{At: o.Ended, Kind: timeline.KindEnded, What: o.Action.Key().String(), Took: o.Ended.Sub(o.Began)}
	if o.Err != nil {
		r.Error = o.Err.Error()
	} else {
		r.Why = o.Message
	}
	w.ring.Add(r)
}
