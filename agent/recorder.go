package agent

import (
	"path/filepath"

	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/edge/recorder"
)

// wentWrong makes the recorder, which stores turns that went wrong on disk, and returns the function that passes a turn to it. It returns
// nil if nothing is to be recorded or the node has no root directory.
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
