package agent

import (
	"path/filepath"

	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/edge/recorder"
)

// wentWrong makes the recorder of turns that went wrong, and returns the function that passes a turn to it. It returns nil if the
// configuration asks for none, or the node has no directory of its own.
func (a *Agent) wentWrong() func(*replay.Turn) {
	if a.cfg.RecordBytes <= 0 || a.cfg.RootDir == "" {
		return nil
	}
	a.recorder = recorder.New(recorder.Config{Dir: filepath.Join(a.cfg.RootDir, recorder.DirName), MaxBytes: a.cfg.RecordBytes, Log: a.log})
	return func(t *replay.Turn) {
		t.Agent = a.cfg.KubeletVersion
		a.recorder.Record(t)
	}
}
