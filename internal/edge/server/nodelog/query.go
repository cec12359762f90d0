package nodelog

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
)

// These constants limit the parts of a query. The first three are those of upstream's kubelet.
const (
	maxTailLines = 100_000
	maxService   = 256 // bytes of the name of a service
	maxServices  = 4
	maxPattern   = 4 << 10 // bytes of a pattern
)

// Query is a valid query: services with options, or one file without options.
type Query struct {
	Services []string
	File     string

	Since, Until time.Time // bounds of the messages' times; zero: no bound
	Tail         *int      // number of newest lines that are wanted; nil: all
	Boot         *int      // boot whose messages are wanted; 0: this boot, -1: the boot before; nil: every boot
	Pattern      string    // a regular expression of journalctl; "": every message
}

// hasOptions reports whether the query has a time, a number of lines, a boot or a pattern, besides its services or its file.
func (q *Query) hasOptions() bool {
	return !q.Since.IsZero() || !q.Until.IsZero() || q.Tail != nil || q.Boot != nil || q.Pattern != ""
}

// Error is a problem with a query, with the status code of the answer: 400 for a value that cannot be parsed, 406 for a query
// without meaning.
type Error struct {
	Status int
	Text   string
}

// Parse reads the parameters of a request. It returns nil without an error if they contain no query.
func Parse(values url.Values) (*Query, *Error) {
	p := parser{values: values}
	q := &Query{Since: p.time("sinceTime"), Until: p.time("untilTime"), Boot: p.number("boot"), Tail: p.number("tailLines"), Pattern: values.Get("pattern")}
	files := q.readNames(values["query"])
	switch {
	case values.Has("query") && len(files)+len(q.Services) == 0:
		p.fail(http.StatusBadRequest, "query: may not be empty")
	case p.err == nil && len(files)+len(q.Services) == 0 && !q.hasOptions():
		return nil, nil
	}
	if p.err != nil {
		return nil, p.err
	}
	p.check(q, files)
	if p.err != nil {
		return nil, p.err
	}
	return q, nil
}

// readNames divides the values of the parameter "query" into services and files. A name with a slash is a file.
func (q *Query) readNames(names []string) (files []string) {
	for _, name := range names {
		switch {
		case strings.ContainsAny(name, `/\`):
			files = append(files, name)
		case strings.TrimSpace(name) != "":
			q.Services = append(q.Services, name)
		}
	}
	if len(files) == 1 {
		q.File = files[0]
	}
	return files
}

// parser reads the values of a query and keeps the first problem that it finds.
type parser struct {
	values url.Values
	err    *Error
}

func (p *parser) fail(status int, format string, args ...any) {
	if p.err == nil {
		p.err = &Error{status, fmt.Sprintf(format, args...)}
	}
}

func (p *parser) time(name string) time.Time {
	v := p.values.Get(name)
	if v == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		p.fail(http.StatusBadRequest, "%s: %.100q: invalid time format: write it as in 2006-01-02T15:04:05Z", name, v)
	}
	return t
}

func (p *parser) number(name string) *int {
	v := p.values.Get(name)
	if v == "" {
		return nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		p.fail(http.StatusBadRequest, "%s: %.100q: is not a number", name, v)
	}
	return &n
}

// foreign reports whether a character is not allowed in the name of a service.
func foreign(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.:@", r))
}

func (p *parser) check(q *Query, files []string) {
	const senseless = http.StatusNotAcceptable
	for _, s := range q.Services {
		if len(s) > maxService {
			p.fail(senseless, "query: %.100q: the name of a service has at most %d characters", s, maxService)
		}
		if strings.ContainsFunc(s, foreign) {
			p.fail(senseless, "query: %q: input contains unsupported characters", s)
		}
	}
	switch {
	case len(q.Services) > maxServices:
		p.fail(senseless, "query: %d services: at most %d are allowed", len(q.Services), maxServices)
	case len(files)+len(q.Services) == 0:
		p.fail(senseless, "query: cannot be empty with options: name a service")
	case len(files) > 0 && len(q.Services) > 0:
		p.fail(senseless, "query: cannot specify a file and service")
	case len(files) > 1:
		p.fail(senseless, "query: cannot specify more than one file")
	case len(files) == 1 && q.hasOptions():
		p.fail(senseless, "query: cannot specify file with options")
	case !q.Since.IsZero() && !q.Until.IsZero() && q.Since.After(q.Until):
		p.fail(senseless, "untilTime: must be after sinceTime")
	case q.Boot != nil && *q.Boot > 0:
		p.fail(senseless, "boot: %d: must be less than 1", *q.Boot)
	case q.Tail != nil && (*q.Tail < 0 || *q.Tail > maxTailLines):
		p.fail(senseless, "tailLines: %d: must be between 0 and %d, inclusive", *q.Tail, maxTailLines)
	case len(q.Pattern) > maxPattern || strings.ContainsRune(q.Pattern, 0):
		p.fail(senseless, "pattern: at most %d bytes, and no zero byte, are allowed", maxPattern)
	}
	if _, err := syntax.Parse(q.Pattern, syntax.Perl); err != nil {
		p.fail(senseless, "pattern: %v", err)
	}
}

// journalTime is the layout, for package time, of the times that journalctl accepts. The times are in UTC.
const journalTime = "2006-01-02 15:04:05 MST"

// arguments returns the command line of journalctl for services. It requests the output format that Kubernetes' kubelet requests.
func (q *Query) arguments(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.Since.IsZero() {
		args = append(args, "--since="+q.Since.UTC().Format(journalTime))
	}
	if !q.Until.IsZero() {
		args = append(args, "--until="+q.Until.UTC().Format(journalTime))
	}
	if q.Tail != nil {
		args = append(args, "--lines="+strconv.Itoa(*q.Tail))
	}
	for _, s := range services {
		args = append(args, "--unit="+s)
	}
	if q.Pattern != "" {
		args = append(args, "--grep="+q.Pattern)
	}
	if q.Boot != nil {
		args = append(args, "--boot="+strconv.Itoa(*q.Boot))
	}
	return args
}
