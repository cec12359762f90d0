package simcsi

import (
	"fmt"
	"testing"
	"time"
)

// A volume is used as its attributes say, from the time at which it was made, and never more than it has room. A volume without a size has no usage; attributes that
// are no numbers count as none.
func TestUseOfAVolume(t *testing.T) {
	t.Parallel()
	made := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		attributes map[string]string
		after      time.Duration
		want       string // total, available and used; "": no usage
	}{
		"no size":           {attributes: map[string]string{AttributeUsed: "5"}},
		"nothing used":      {attributes: map[string]string{AttributeSize: "100"}, want: "100 100 0"},
		"used":              {attributes: map[string]string{AttributeSize: "100", AttributeUsed: "30"}, want: "100 70 30"},
		"grows":             {attributes: map[string]string{AttributeSize: "100", AttributeUsed: "30", AttributeUsedPerSecond: "2", AttributeMade: "1000"}, after: 10 * time.Second, want: "100 50 50"},
		"full":              {attributes: map[string]string{AttributeSize: "100", AttributeUsedPerSecond: "2", AttributeMade: "1000"}, after: time.Hour, want: "100 0 100"},
		"the clock is back": {attributes: map[string]string{AttributeSize: "100", AttributeUsedPerSecond: "2", AttributeMade: "1000"}, after: -time.Hour, want: "100 100 0"},
		"no numbers":        {attributes: map[string]string{AttributeSize: "100", AttributeUsed: "-7", AttributeUsedPerSecond: "x"}, want: "100 100 0"},
	} {
		d := New(Config{Sized: true})
		d.learnUse("v", c.attributes)
		use, known := d.uses["v"]
		got := ""
		if known {
			u := use.usage(made.Add(c.after))[0]
			got = fmt.Sprint(u.Total, u.Available, u.Used)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
