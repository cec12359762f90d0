package timeline

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// The test checks that a full Ring keeps the newest records in order, and counts the older ones that it dropped.
func TestTheNewestStay(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, maxRecords - 1, maxRecords, maxRecords + 1, 3*maxRecords + 5} {
		var r Ring
		for i := range n {
			r.Add(Record{What: fmt.Sprint(i)})
		}
		got, dropped := r.Records()
		want := max(0, n-maxRecords)
		if len(got) != n-want || dropped != want {
			t.Errorf("of %d: %d records and %d dropped, want %d and %d", n, len(got), dropped, n-want, want)
		}
		for i := range got {
			if got[i].What != fmt.Sprint(want+i) {
				t.Fatalf("of %d: record %d is %q, want %d", n, i, got[i].What, want+i)
			}
		}
	}
}

// TestWords checks that each kind and each band is the same after it was encoded as JSON and decoded. An unknown name, from a newer agent,
// must decode to the zero value without an error.
func TestWords(t *testing.T) {
	t.Parallel()
	for k := KindDecision; k <= KindEnded; k++ {
		for b := BandNone; b <= BandFailed; b++ {
			text, err := json.Marshal(Record{Kind: k, Band: b})
			var got Record
			if err != nil || json.Unmarshal(text, &got) != nil || got.Kind != k || got.Band != b || strings.Contains(string(text), "band") != (b != BandNone) {
				t.Errorf("%v and %v became %s, and that %+v", k, b, text, got)
			}
		}
	}
	var got Record
	if err := json.Unmarshal([]byte(`{"kind":"slept","band":"dreaming"}`), &got); err != nil || got.Kind != 0 || got.Band != BandNone {
		t.Errorf("words of a newer agent: %+v, %v", got, err)
	}
}

// The test checks that a Ring cuts long texts to at most maxText bytes, and that the result is valid UTF-8, because it becomes JSON.
func TestTextsAreBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", strings.Repeat("x", maxText), strings.Repeat("x", maxText+1), strings.Repeat("é", maxText), "a" + strings.Repeat("é", maxText), strings.Repeat("船", maxText)} {
		var r Ring
		r.Add(Record{Cause: text, What: text, Why: text, Error: text})
		rec, _ := r.Records()
		for _, got := range []string{rec[0].Cause, rec[0].What, rec[0].Why, rec[0].Error} {
			if len(got) > maxText || !utf8.ValidString(got) || (len(text) <= maxText) != (got == text) || len(got) < min(len(text), maxText-6) {
				t.Errorf("%d bytes became %d: %q", len(text), len(got), got)
			}
		}
	}
}

// The test checks that the result of Records does not change when more records are added to the Ring.
func TestRecordsAreACopy(t *testing.T) {
	t.Parallel()
	var r Ring
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 2 * maxRecords {
				r.Add(Record{At: time.Unix(int64(i), 0), What: "x"})
				if got, _ := r.Records(); len(got) == 0 || len(got) > maxRecords {
					t.Errorf("%d records", len(got))
				}
			}
		})
	}
	wg.Wait()
	before, _ := r.Records()
	first := before[0]
	for range maxRecords {
		r.Add(Record{What: "y"})
	}
	if before[0] != first {
		t.Error("a record that was handed out has changed")
	}
}

// The test checks that a Ring returns each field of a record as it was added, although rings share a part of the fields.
func TestRecordsComeBackWhole(t *testing.T) {
	t.Parallel()
	want := Record{
		At: time.Now().Round(0), Kind: KindEnded, Band: BandReady, Cause: "cause", What: "what", Why: "why", Waited: time.Second, Took: time.Minute, Error: "error",
	}
	var r Ring
	r.Add(want)
	r.Add(Record{})
	if got, _ := r.Records(); len(got) != 2 || got[0] != want || got[1] != (Record{}) {
		t.Errorf("got %+v, want %+v and an empty record", got, want)
	}
}
