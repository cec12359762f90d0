package simrules

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/wherry-node/wherry/internal/core/yamldoc"
)

// These identify a file of rules.
const (
	APIVersion = "wherry.dev/v1alpha1"
	Kind       = "SimulationRules"
)

// Bounds of rules.
const (
	MaxFile  = 1 << 20  // bytes of a file
	MaxDo    = 64 << 10 // bytes of an annotation
	maxRules = 1000
	maxItems = 1000    // of one list of a rule
	maxText  = 1 << 20 // bytes of one text
)

// rulesFile is the content of a file of rules.
type rulesFile struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Containers []Rule  `json:"containers"`
	Images     []Image `json:"images"`
}

// Parse reads rules from a file in YAML or JSON, with one document or several: of kind SimulationRules, or of KWOK's API (see kwok.go). name is the
// file's name for errors. read returns the content of another file that a document names, at most MaxFile bytes; nil: there are no other files. The
// error joins all problems, each with file, line and field.
func Parse(name string, data []byte, read func(file string) ([]byte, error)) (*Rules, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s: the rules have %d bytes, more than %d", name, len(data), MaxFile)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s: the file is empty: write apiVersion: %s, kind: %s, and containers or images", name, APIVersion, Kind)
	}
	rules := &Rules{}
	var errs []error
	for _, part := range yamldoc.Split(data) {
		d := yamldoc.Document{Name: name, Offset: part.Before}
		var one *Rules
		var err error
		if isKWOK(part.Text) {
			one, err = parseKWOK(&d, part.Text, read)
		} else {
			one, err = parseOwn(&d, part.Text)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rules.Add(one)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if n := max(len(rules.Containers), len(rules.Images)); n > maxRules {
		return nil, fmt.Errorf("%s: %d rules, more than %d", name, n, maxRules)
	}
	return rules, nil
}

// parseOwn reads a document of kind SimulationRules.
func parseOwn(d *yamldoc.Document, data []byte) (*Rules, error) {
	var f rulesFile
	if err := d.Decode(data, APIVersion, Kind, &f); err != nil {
		return nil, err
	}
	if len(f.Containers)+len(f.Images) == 0 {
		d.Bad("containers", "the file has no rule: write containers: [{match: {image: \"*\"}, do: {exits: [{after: 10s}]}}]")
	}
	if len(f.Containers) > maxRules || len(f.Images) > maxRules {
		d.Bad("containers", fmt.Sprintf("use at most %d rules of containers, and as many of images", maxRules))
		f.Containers, f.Images = nil, nil
	}
	for i := range f.Containers {
		f.Containers[i].Do.check(func(field, text string) { d.Bad(join("containers["+strconv.Itoa(i)+"].do", field), text) })
	}
	for i := range f.Images {
		f.Images[i].check(func(field, text string) { d.Bad(join("images["+strconv.Itoa(i)+"]", field), text) })
	}
	if len(d.Errs) > 0 {
		return nil, errors.Join(d.Errs...)
	}
	return &Rules{Containers: f.Containers, Images: f.Images}, nil
}

// ParseDo reads the value of the annotation that says what a container does. The value has the form of the field do of a rule.
func ParseDo(name string, data []byte) (*Do, error) {
	if len(data) > MaxDo {
		return nil, fmt.Errorf("%s: %d bytes, more than %d", name, len(data), MaxDo)
	}
	d := yamldoc.Document{Name: name}
	var do Do
	if err := d.DecodePlain(data, &do); err != nil {
		return nil, err
	}
	do.check(d.Bad)
	if len(d.Errs) > 0 {
		return nil, errors.Join(d.Errs...)
	}
	return &do, nil
}

// join joins the path of an object with that of a field in it; the field "" is the object itself.
func join(path, field string) string {
	if field == "" || field[0] == '[' {
		return path + field
	}
	return path + "." + field
}

// check calls bad for each wrong field, and computes what the other methods need.
func (d *Do) check(bad func(field, text string)) {
	if len(d.Exits) > maxItems || len(d.Exec) > maxItems || len(d.HTTP) > maxItems || len(d.Log.Lines)+len(d.Log.Repeat) > 20*maxItems {
		bad("", "a list of this rule is too long: use at most 1000 exits and answers, and 20000 lines")
		return
	}
	for i := range d.Exits {
		d.Exits[i].check(func(field, text string) { bad(join("exits["+strconv.Itoa(i)+"]", field), text) })
	}
	d.checkStop(bad)
	for field, t := range map[string]time.Duration{"startAfter": d.StartAfter.Duration, "readyAfter": d.ReadyAfter.Duration, "failAfter": d.FailAfter.Duration} {
		checkTime(field, t, bad)
	}
	d.Log.check(func(field, text string) { bad("log."+field, text) })
	for i := range d.Exec {
		e := &d.Exec[i]
		at := "exec[" + strconv.Itoa(i) + "]"
		if e.Command == "" {
			bad(at+".command", "write a pattern of the command, such as \"cat *\", or \"*\" for all commands")
		}
		if e.Code < 0 || e.Code > 255 {
			bad(at+".code", "use 0 to 255")
		}
		checkSpan(at, e.From.Duration, e.Until.Duration, bad)
	}
	for i := range d.HTTP {
		h := &d.HTTP[i]
		at := "http[" + strconv.Itoa(i) + "]"
		if h.Status < 200 || h.Status > 599 {
			bad(at+".status", "use a status from 200 to 599")
		}
		if h.Port < 0 || h.Port > 65535 {
			bad(at+".port", "use 1 to 65535, or leave it out")
		}
		checkSpan(at, h.From.Duration, h.Until.Duration, bad)
	}
	for field, u := range map[string]*Usage{"cpu": d.CPU, "memory": d.Memory, "disk": d.Disk} {
		if u != nil {
			u.check(func(sub, text string) { bad(join(field, sub), text) })
		}
	}
}

func (d *Do) checkStop(bad func(field, text string)) {
	if d.StopCode < 0 || d.StopCode > 255 {
		bad("stopCode", "use 0 to 255")
	}
	switch d.StopAfter {
	case "":
	case "never":
		d.neverEnd = true
	default:
		t, err := time.ParseDuration(d.StopAfter)
		if err != nil || t < 0 || t > maxTime {
			bad("stopAfter", "use a time such as 5s, or never")
		}
		d.stops = t
	}
}

func (e *Exit) check(bad func(field, text string)) {
	checkTime("after", e.After.Duration, bad)
	switch {
	case e.Jitter.Duration < 0 || e.Jitter.Duration > e.After.Duration:
		bad("jitter", "use a time of at most after")
	case e.Chance < 0 || e.Chance > 1:
		bad("chance", "use a number from 0 to 1")
	case e.Code < 0 || e.Code > 255:
		bad("code", "use 0 to 255")
	case e.OOM && (e.Code != 0 || e.Reason != ""):
		bad("oom", "it sets code and reason itself: remove them")
	case e.Runs && *e != (Exit{Runs: true}):
		bad("runs", "a container that runs has no other field of an end: remove them")
	}
}

func (l *Log) check(bad func(field, text string)) {
	var lap time.Duration
	for _, part := range []struct {
		name  string
		lines []Line
	}{{"lines", l.Lines}, {"repeat", l.Repeat}} {
		for i := range part.lines {
			line := &part.lines[i]
			checkTime(part.name+"["+strconv.Itoa(i)+"].after", line.After.Duration, bad)
			if len(line.Text) > maxText {
				bad(part.name+"["+strconv.Itoa(i)+"].text", "the text is too long")
			}
			if part.name == "repeat" {
				lap += line.After.Duration
			}
		}
	}
	if len(l.Repeat) > 0 && lap < 100*time.Millisecond {
		bad("repeat", "the lines must take at least 100ms together: set after")
	}
}

// check calls bad for each wrong field.
func (i *Image) check(bad func(field, text string)) {
	if i.Image == "" {
		bad("image", "write a pattern of the image's name, such as \"registry.example/*\"")
	}
	for field, q := range map[string]float64{"size": i.Size.AsApproximateFloat64(), "speed": i.Speed.AsApproximateFloat64()} {
		if q < 0 || q > maxAmount {
			bad(field, "use 0 to 1Pi")
		}
	}
	checkTime("time", i.Time.Duration, bad)
	switch {
	case i.Jitter.Duration < 0 || i.Jitter.Duration > i.Time.Duration:
		bad("jitter", "use a time of at most time")
	case i.Chance < 0 || i.Chance > 1:
		bad("chance", "use a number from 0 to 1")
	case i.Chance > 0 && i.Error == "":
		bad("chance", "this is the probability of error: set error")
	}
}

func checkTime(field string, d time.Duration, bad func(field, text string)) {
	if d < 0 || d > maxTime {
		bad(field, "use a time from 0s to 10 years")
	}
}

func checkSpan(at string, from, until time.Duration, bad func(field, text string)) {
	checkTime(at+".from", from, bad)
	if until != 0 && until <= from {
		bad(at+".until", "use a time after from, or leave it out")
	}
}
