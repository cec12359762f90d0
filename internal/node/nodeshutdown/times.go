package nodeshutdown

import "time"

// Times returns when the last shutdown began, and when the pods had ended or their time was over. A zero time means that this has
// not happened.
func (w *Watch) Times() (began, finished time.Time) { return at(w.began.Load()), at(w.finished.Load()) }

func at(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
