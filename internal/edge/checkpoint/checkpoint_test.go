package checkpoint

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/proof/fuzzfill"
)

type store interface {
	Load(types.UID) (*decide.Memory, error)
	Save(types.UID, *decide.Memory) error
}

func stores(t *testing.T) map[string]store {
	return map[string]store{"directory": Dir{Root: t.TempDir()}, "memory": In{&InMemory{}}}
}

// Load returns the memory that Save stored, except the fields that package decide does not mark as kept. For a pod without a
// checkpoint, Load returns nil and no error.
func TestWhatIsKeptComesBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	m := &decide.Memory{
		Grant:      decide.Grant{Admitted: true, StartTime: now},
		PodSettled: decide.PodSettled{StopBegan: now.Add(time.Minute), StopGrace: 30 * time.Second},
		Stop:       &decide.Stop{Reason: "Evicted", Message: "why", Since: now, Grace: new(time.Second)},
		PodTries:   decide.PodTries{SetUp: true}, // not kept: after a restart the agent sets up the volumes again
		Containers: []decide.ContainerMemory{{Name: "main", ContainerTries: decide.ContainerTries{Pulled: true},
			ContainerSettled: decide.ContainerSettled{CrashDelay: 20 * time.Second, CrashUntil: now.Add(time.Hour), CrashedID: "abc"},
			ContainerLearned: decide.ContainerLearned{PostStartedID: "abc"}}},
	}
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := s.Load("u"); got != nil || err != nil {
				t.Fatalf("before the first Save: %v, %v", got, err)
			}
			for _, grace := range []time.Duration{time.Hour, 30 * time.Second} { // the second file replaces the first
				m := *m
				m.StopGrace = grace
				if err := s.Save("u", &m); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Load("u")
			if err != nil {
				t.Fatal(err)
			}
			want := m.Kept()
			if d := cmp.Diff(&want, got); d != "" {
				t.Error(d)
			}
			if got.SetUp || got.Containers[0].Pulled {
				t.Error("a field that is not kept was saved")
			}
			if got, err := s.Load("other"); got != nil || err != nil {
				t.Errorf("another pod: %v, %v", got, err)
			}
		})
	}
}

// The error for a file that cannot be read names the file and the remedy. A file of another version counts as missing.
func TestFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	d := Dir{Root: t.TempDir()}
	if err := d.Save("u", &decide.Memory{Grant: decide.Grant{Admitted: true}}); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(d.path("u"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"", "{", `{"version":"x"}`, "\x00\x00\x00"} {
		write(text)
		if got, err := d.Load("u"); got != nil || err == nil || !strings.Contains(err.Error(), d.path("u")) || !strings.Contains(err.Error(), "delete the file") {
			t.Errorf("of %q: %v, %v; want an error that names the file and what to do", text, got, err)
		}
	}
	write(`{"version":99,"memory":{"Admitted":true}}`)
	if got, err := d.Load("u"); got != nil || err != nil {
		t.Errorf("another version: %v, %v; want nothing", got, err)
	}
}

// If a write fails, the old checkpoint is still complete, and no part of the new file is left.
func TestAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	d := Dir{Root: t.TempDir()}
	if err := d.Save("u", &decide.Memory{Grant: decide.Grant{Admitted: true}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", d.path("u")+".new"); err != nil {
		t.Fatal(err)
	}
	if err := d.Save("u", &decide.Memory{PodSettled: decide.PodSettled{Finished: true}}); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("save on a full disk: %v", err)
	}
	m, err := d.Load("u")
	if err != nil || !m.Admitted || m.Finished {
		t.Errorf("memory %+v, %v; want the old one", m, err)
	}
	entries, err := os.ReadDir(filepath.Dir(d.path("u")))
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v; want the old checkpoint alone", entries, err)
	}
}

func TestInMemoryForgets(t *testing.T) {
	t.Parallel()
	m := &InMemory{}
	for _, uid := range []types.UID{"b", "a"} {
		if err := m.Save(uid, []byte("kept")); err != nil {
			t.Fatal(err)
		}
	}
	m.Remove("b")
	m.Remove("never there")
	if d := cmp.Diff([]types.UID{"a"}, m.UIDs()); d != "" {
		t.Error(d)
	}
}

// A power cut may leave any part of a checkpoint. Load never accepts such a file.
func TestNoTornCheckpointIsBelieved(t *testing.T) {
	t.Parallel()
	d := Dir{Root: t.TempDir()}
	if err := d.Save("u", &decide.Memory{Grant: decide.Grant{Admitted: true},
		Containers: []decide.ContainerMemory{{Name: "main", ContainerSettled: decide.ContainerSettled{CrashedID: "abc"}}}}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(d.path("u"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		for name, torn := range map[string][]byte{"cut": whole[:n], "zeros": append(slices.Clone(whole[:n]), make([]byte, len(whole)-n)...)} {
			if err := os.WriteFile(d.path("u"), torn, 0o600); err != nil {
				t.Fatal(err)
			}
			if m, err := d.Load("u"); m != nil || err == nil {
				t.Fatalf("%s after %d of %d bytes: %+v, %v", name, n, len(whole), m, err)
			}
		}
	}
}

// The checkpoint in the test has a value in every field, in the format of agents whose memory was not divided into parts. Load reads all
// fields.
func TestCheckpointOfAnOlderAgent(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/checkpoint-2026-11-23.json")
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	at := func(seconds int) time.Time { return time.Date(2026, 1, 2, 3, 4, seconds, 0, time.UTC) }
	size := func(n int64) pod.Size {
		return pod.Size{CPURequest: n, CPULimit: n + 1, MemoryRequest: n + 2, MemoryLimit: n + 3}
	}
	want := &decide.Memory{
		Grant: decide.Grant{Admitted: true, StartTime: at(19), Allocated: pod.AllocationOf(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "app", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}}})},
		Stop: &decide.Stop{Reason: "Reason", Message: "Message", Rejected: true, Grace: new(time.Minute), Since: at(12)},
		Resize: decide.Resize{Pending: "Pending", PendingMessage: "PendingMessage", PendingGeneration: 19, PendingSince: at(25),
			InProgress: true, Error: "Error", Generation: 23, Since: at(29)},
		PodSettled: decide.PodSettled{StopBegan: at(13), StopGrace: 9 * time.Second, Finished: true, Orphaned: true, RestartingAll: true, RestartedAll: true},
		Ends:       decide.Ends{{Name: "Name", ID: "ID", Cause: pod.CauseLiveness, Began: at(40), Grace: 36 * time.Second}},
		PodLearned: decide.PodLearned{GroupSize: size(26), GroupSized: true},
		Containers: []decide.ContainerMemory{{
			Name: "Name",
			ContainerSettled: decide.ContainerSettled{CrashDelay: 45 * time.Second, CrashUntil: at(51), CrashedID: "CrashedID",
				ReplacedID: "ReplacedID", ReplacedFor: pod.CauseLiveness},
			ContainerLearned: decide.ContainerLearned{Kind: pod.KindEphemeral, Place: 44, PostStartedID: "PostStartedID", PostStartFailed: true,
				PreStoppedID: "PreStoppedID", SizedID: "SizedID", Size: size(77)},
		}},
	}
	if d := cmp.Diff(want, m); d != "" {
		t.Errorf("the memory of an older checkpoint (-want +got):\n%s", d)
	}
	again, err := encode(m, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := decode(again); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("written anew: %v\n%s", err, cmp.Diff(want, got))
	}
}

// The checkpoint of a pod that runs is small, because it has only what is not zero. A simulated node keeps its checkpoints in memory.
func TestCheckpointOfARunningPodIsSmall(t *testing.T) {
	t.Parallel()
	raw, err := encode(&decide.Memory{
		Grant:      decide.Grant{Admitted: true, StartTime: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		PodLearned: decide.PodLearned{GroupSized: true},
		Containers: []decide.ContainerMemory{{Name: "app", ContainerLearned: decide.ContainerLearned{SizedID: strings.Repeat("a", 64), Size: pod.Size{CPURequest: 2}}}},
	}, "") // a simulated machine has no boot_id
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > 300 {
		t.Errorf("%d bytes, want at most 300: %s", len(raw), raw)
	}
	if raw, err = encode(&decide.Memory{}, ""); err != nil || string(raw) != `{"version":1,"memory":{}}` {
		t.Errorf("of no memory: %s, %v", raw, err)
	}
}

// Whatever a memory contains, Load returns what Save stored.
func TestAnyMemoryComesBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		var m decide.Memory
		fuzzfill.Fill(&m, rand.New(rand.NewPCG(seed, 1)))
		raw, err := encode(&m, "")
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := decode(raw)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := m.Kept()
		if d := cmp.Diff(&want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, d)
		}
	}
}

// After a reboot of the machine the containers start at once, and their back-off starts over. An agent that is only restarted goes on with it, and so
// does one that does not know whether the machine has been booted.
func TestARebootEndsBackOffs(t *testing.T) {
	t.Parallel()
	waits := decide.ContainerMemory{Name: "main", ContainerSettled: decide.ContainerSettled{CrashDelay: 5 * time.Minute, CrashUntil: time.Unix(1e9, 0).UTC(), CrashedID: "abc"}}
	starts := decide.ContainerMemory{Name: "main", ContainerSettled: decide.ContainerSettled{CrashedID: "abc"}}
	for _, try := range []struct {
		before, after string
		want          decide.ContainerMemory
	}{{"one", "two", starts}, {"one", "one", waits}, {"", "two", waits}, {"one", "", waits}} {
		d := Dir{Root: t.TempDir(), Boot: try.before}
		if err := d.Save("u", &decide.Memory{Containers: []decide.ContainerMemory{waits}}); err != nil {
			t.Fatal(err)
		}
		d.Boot = try.after
		if m, err := d.Load("u"); err != nil || cmp.Diff([]decide.ContainerMemory{try.want}, m.Containers) != "" {
			t.Errorf("boot %q, then %q: %v, %s", try.before, try.after, err, cmp.Diff([]decide.ContainerMemory{try.want}, m.Containers))
		}
	}
}
