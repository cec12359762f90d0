package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxMessage   = 128 << 10        // bytes, unless one document is larger
	maxWanted    = 600              // bytes of a pod's name with its namespace
	streamLife   = 30 * time.Minute // then the browser opens a new stream, and its user's rights are checked again
	writeWithin  = 10 * time.Second
	aliveEvery   = 15 * time.Second
	reopenMillis = "1500"
)

// detailPrefix begins the keys of documents about one pod, which are sent only to the viewers that want this pod: "detail/" + pod +
// "/...".
const detailPrefix = "detail/"

// news returns messages with all changes since the viewer's last messages. The caller holds the lock of the hub.
func (v *viewer) news(b *Board, now time.Time) (messages [][]byte) {
	if v.seen == b.version {
		return nil
	}
	var body bytes.Buffer
	count := 0
	begin := func() {
		body.Reset()
		count = 0
		body.WriteString(`{"now":` + strconv.FormatInt(now.UnixMilli(), 10) + `,"set":{`)
	}
	begin()
	for _, key := range slices.Sorted(maps.Keys(b.docs)) {
		d := b.docs[key]
		if d.version <= v.seen && v.sent[key] || !v.wants(key) {
			continue
		}
		if count > 0 && body.Len()+len(d.body) > maxMessage {
			body.WriteString(`},"more":true}`)
			messages = append(messages, bytes.Clone(body.Bytes()))
			begin()
		}
		if count++; count > 1 {
			body.WriteByte(',')
		}
		name, _ := json.Marshal(key) // a string always has a JSON form
		body.Write(name)
		body.WriteByte(':')
		body.Write(d.body)
		v.sent[key] = true
	}
	var gone []string
	for key := range v.sent {
		if b.docs[key] == nil {
			delete(v.sent, key)
			gone = append(gone, key)
		}
	}
	v.seen = b.version
	if count == 0 && len(gone) == 0 && len(messages) == 0 {
		return nil
	}
	slices.Sort(gone)
	names, _ := json.Marshal(gone)
	body.WriteString(`},"gone":`)
	body.Write(names)
	body.WriteByte('}')
	return append(messages, body.Bytes())
}

// wants reports whether the document with this key is sent to the viewer.
func (v *viewer) wants(key string) bool {
	rest, detail := strings.CutPrefix(key, detailPrefix)
	return !detail || v.wanted != "" && strings.HasPrefix(rest, v.wanted+"/")
}

// stream serves one viewer until it disconnects or the stream is older than streamLife.
func (c *Console) stream(w http.ResponseWriter, r *http.Request) {
	wanted := r.URL.Query().Get("detail")
	if len(wanted) > maxWanted {
		http.Error(w, "detail: the name is too long", http.StatusBadRequest)
		return
	}
	v := c.hub.join(wanted)
	if v == nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many viewers look at this node: close another page", http.StatusServiceUnavailable)
		return
	}
	defer c.hub.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	send := func(text ...[]byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeWithin))
		defer func() { _ = out.SetWriteDeadline(time.Time{}) }() // over HTTP/2 a deadline ends the stream even if nothing is being written
		for _, t := range text {
			if _, err := w.Write(t); err != nil {
				return false
			}
		}
		return out.Flush() == nil
	}
	if !send([]byte("retry: " + reopenMillis + "\n\n")) {
		return
	}
	opened, said := time.Now(), time.Now()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for time.Since(opened) < streamLife {
		select {
		case <-r.Context().Done():
			return
		case <-rest.C:
		}
		messages, pause := c.hub.refresh(r.Context(), v)
		if len(messages) == 0 && time.Since(said) >= aliveEvery {
			if said = time.Now(); !send([]byte(":\n\n")) {
				return
			}
		}
		for _, m := range messages {
			if said = time.Now(); !send([]byte("data: "), m, []byte("\n\n")) {
				return
			}
		}
		rest.Reset(pause)
	}
}
