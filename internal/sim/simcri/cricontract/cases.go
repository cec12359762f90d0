package cricontract

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

func nodeIsReady(t *testing.T, s Subject) {
	v, err := s.Runtime.Version(t.Context(), &runtimeapi.VersionRequest{})
	if err != nil || v.RuntimeApiVersion != "v1" || v.RuntimeName == "" || v.RuntimeVersion == "" {
		t.Errorf("Version: %v %v", v, err)
	}
	st, err := s.Runtime.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		if !slices.ContainsFunc(st.Status.Conditions, func(c *runtimeapi.RuntimeCondition) bool { return c.Type == name && c.Status }) {
			t.Errorf("condition %s is not true: %v", name, st.Status.Conditions)
		}
	}
	if !slices.ContainsFunc(st.RuntimeHandlers, func(h *runtimeapi.RuntimeHandler) bool { return h.Name == "" }) {
		t.Errorf("no default runtime handler: %v", st.RuntimeHandlers)
	}
}

func sandboxLives(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	st := p.status()
	if st.State != runtimeapi.PodSandboxState_SANDBOX_READY || st.Metadata.Uid != p.cfg.Metadata.Uid || st.CreatedAt == 0 ||
		st.Labels["io.kubernetes.pod.uid"] != p.cfg.Metadata.Uid || st.Annotations["note"] != "n" {
		t.Errorf("status %v", st)
	}
	if st.GetNetwork().GetIp() == "" {
		t.Error("the sandbox has no address")
	}
	for range 2 {
		if _, err := s.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Fatalf("StopPodSandbox: %v", err)
		}
	}
	if st := p.status(); st.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || st.GetNetwork().GetIp() != "" {
		t.Errorf("after the stop: %v", st)
	}
	for range 2 {
		if _, err := s.Runtime.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Fatalf("RemovePodSandbox: %v", err)
		}
	}
	_, err := s.Runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	wantCode(t, "PodSandboxStatus of what is removed", err, codes.NotFound)
	_, err = s.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
	wantCode(t, "StopPodSandbox of what is removed", err, codes.OK)
}

func sandboxNameIsReserved(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	if resp, err := s.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: p.cfg}); err == nil {
		t.Errorf("a second sandbox of one name and attempt: %s", resp.PodSandboxId)
	}
	p.cfg.Metadata = &runtimeapi.PodSandboxMetadata{
		Name: p.cfg.Metadata.Name, Namespace: p.cfg.Metadata.Namespace, Uid: p.cfg.Metadata.Uid, Attempt: 1,
	}
	p.run() // the next attempt has another name, because the name contains the attempt
	if got := p.status().Metadata.Attempt; got != 1 {
		t.Errorf("attempt %d, want 1", got)
	}
}

func hostNetworkHasNoAddress(t *testing.T, s Subject) {
	p := newPod(t, s)
	p.cfg.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	if _, err := s.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: p.cfg}); err == nil {
		t.Error("a sandbox of the host's network got a hostname of its own")
	}
	p.cfg.Hostname = ""
	st := p.run().status()
	if st.GetNetwork().GetIp() != "" || st.GetLinux().GetNamespaces().GetOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		t.Errorf("status %v", st)
	}
}

func containerLives(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	before := time.Now().UnixNano()
	id := p.create("main", 3, "sleep", "1000")
	st := p.inspect(id)
	wantState(t, st, created, 0, "")
	if st.StartedAt != 0 || st.FinishedAt != 0 || st.CreatedAt < before || st.Metadata.Attempt != 3 || st.Metadata.Name != "main" ||
		st.Labels["io.kubernetes.container.name"] != "main" || st.ImageRef == "" || st.GetImage().GetImage() == "" {
		t.Errorf("created: %v", st)
	}
	if s.LogRoot != "" && st.LogPath != filepath.Join(p.cfg.LogDirectory, "main.log") {
		t.Errorf("log path %q", st.LogPath)
	}
	p.start(id)
	st = p.inspect(id)
	wantState(t, st, running, 0, "")
	if st.StartedAt < st.CreatedAt || st.FinishedAt != 0 {
		t.Errorf("running: %v", st)
	}
	if _, err := s.Runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("a container was started twice")
	}
	p.stop(id, 0)
	st = p.inspect(id)
	wantState(t, st, exited, 137, "Error")
	if st.FinishedAt < st.StartedAt || st.StartedAt == 0 {
		t.Errorf("exited: %v", st)
	}
	p.stop(id, 0)
	p.remove(id)
	p.remove(id)
	p.stop(id, 0)
	_, err := s.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "ContainerStatus of what is removed", err, codes.NotFound)
	_, err = s.Runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	wantCode(t, "StartContainer of what is removed", err, codes.NotFound)
}

func containerExits(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	for _, c := range []struct {
		name   string
		cmd    []string
		code   int32
		reason string
	}{
		{"good", []string{"true"}, 0, "Completed"},
		{"bad", []string{"false"}, 1, "Error"},
		{"seven", []string{"sh", "-c", "echo out; exit 7"}, 7, "Error"},
		{"later", []string{"sh", "-c", "sleep 1 && exit 3"}, 3, "Error"},
	} {
		st := p.ends(p.start(p.create(c.name, 0, c.cmd...)))
		wantState(t, st, exited, c.code, c.reason)
		// a busy runtime reports the start late (even after the end), but never the creation
		if c.name == "later" && (st.StartedAt < st.CreatedAt || time.Duration(st.FinishedAt-st.CreatedAt) < 900*time.Millisecond) {
			t.Errorf("it was created at %d and ran from %d to %d", st.CreatedAt, st.StartedAt, st.FinishedAt)
		}
	}
}

func containerNameIsReserved(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	id := p.create("main", 0, "sleep", "1000")
	if _, err := s.Runtime.CreateContainer(t.Context(), p.container("main", 0, "true")); err == nil {
		t.Error("two containers of one name and attempt")
	}
	p.create("main", 1, "true")
	p.remove(id)
	p.create("main", 0, "true")
}

func creationsThatFail(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	req := p.container("main", 0, "true")
	req.Config.Image = &runtimeapi.ImageSpec{Image: "registry.invalid/no/such:1"}
	if _, err := s.Runtime.CreateContainer(t.Context(), req); err == nil {
		t.Error("a container of an image that is not present")
	}
	id := p.create("main", 0, "true") // the name is free again
	req = p.container("other", 0, "true")
	req.PodSandboxId = strings.Repeat("0", 64)
	_, err := s.Runtime.CreateContainer(t.Context(), req)
	wantCode(t, "CreateContainer in no sandbox", err, codes.NotFound)
	if _, err := s.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Runtime.CreateContainer(t.Context(), p.container("late", 0, "true")); err == nil {
		t.Error("a container in a sandbox that was stopped")
	}
	if _, err := s.Runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("a container started in a sandbox that was stopped")
	}
}

// stubborn makes a container end by SIGKILL: it starts one whose process does not handle SIGTERM, and calls end, which stops it. Right
// after the start the process may still be the runtime's own, which ends by SIGTERM; then stubborn tries again, five times at most. It
// returns the ID of the last container.
func (p *pod) stubborn(end func(id string)) (id string) {
	for attempt := range uint32(5) {
		id = p.start(p.create("main", attempt, "sleep", "1000"))
		end(id)
		if p.inspect(id).ExitCode == 137 {
			break
		}
	}
	return id
}

func stopKillsAfterGrace(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	var began time.Time
	id := p.stubborn(func(id string) {
		began = time.Now()
		p.stop(id, 2)
	})
	if took := time.Since(began); took < 1900*time.Millisecond || took > 2*time.Minute {
		t.Errorf("the stop took %s with a grace of 2 s", took)
	}
	wantState(t, p.inspect(id), exited, 137, "Error")
}

func secondStopIsBesideTheFirst(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	began := time.Now()
	id := p.stubborn(func(id string) {
		first := make(chan error, 1)
		go func() {
			_, err := s.Runtime.StopContainer(context.WithoutCancel(t.Context()), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 300})
			first <- err
		}()
		p.stop(id, 1)
		if err := <-first; err != nil {
			t.Errorf("the first stop: %v", err)
		}
	})
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("the stops took %s", took)
	}
	wantState(t, p.inspect(id), exited, 137, "Error")
}

func stopSandboxKills(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	id := p.start(p.create("main", 0, "sleep", "1000"))
	if _, err := s.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	wantState(t, p.ends(id), exited, 137, "Error")
}

func removeIsForced(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	p.remove(p.start(p.create("main", 0, "sleep", "1000")))
	id := p.start(p.create("main", 1, "sleep", "1000"))
	if _, err := s.Runtime.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "ContainerStatus after its sandbox was removed", err, codes.NotFound)
}

func execSync(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	id := p.start(p.create("main", 0, "sleep", "1000"))
	exec := func(timeout int64, cmd ...string) (*runtimeapi.ExecSyncResponse, error) {
		return s.Runtime.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: timeout})
	}
	resp, err := exec(0, "sh", "-c", "echo out; echo err >&2; exit 4")
	if err != nil || string(resp.Stdout) != "out\n" || string(resp.Stderr) != "err\n" || resp.ExitCode != 4 {
		t.Errorf("%v %v", resp, err)
	}
	if resp, err := exec(60, "true"); err != nil || resp.ExitCode != 0 {
		t.Errorf("%v %v", resp, err)
	}
	began := time.Now()
	_, err = exec(1, "sleep", "600")
	wantCode(t, "ExecSync beyond its timeout", err, codes.DeadlineExceeded)
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("it took %s", took)
	}
	p.stop(id, 0)
	if _, err := exec(0, "true"); err == nil {
		t.Error("ExecSync in a container that has exited")
	}
	p.remove(id)
	_, err = exec(0, "true")
	wantCode(t, "ExecSync in no container", err, codes.NotFound)
}

func events(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := s.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p, pilot := newPod(t, s), newPod(t, s)
	pilotName := pilot.cfg.Metadata.Name + "-pilot"
	pilot.cfg.Metadata.Name = pilotName
	type event struct{ what, id string }
	got, arrived := make(chan event, 1000), make(chan struct{}, 1000)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			e, err := stream.Recv()
			if err != nil {
				return
			}
			switch meta := e.GetPodSandboxStatus().GetMetadata(); {
			case meta.GetUid() == p.cfg.Metadata.Uid && meta.GetName() == p.cfg.Metadata.Name:
				got <- event{e.ContainerEventType.String(), e.ContainerId}
			case meta.GetName() == pilotName:
				arrived <- struct{}{}
			}
		}
	}()
	pilot.announce(arrived)
	next := func(what, id string) {
		t.Helper()
		select {
		case e := <-got:
			if e != (event{what, id}) {
				t.Fatalf("event %v, want %s of %s", e, what, id)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("no event %s of %s", what, id)
		}
	}
	p.run()
	next("CONTAINER_CREATED_EVENT", p.id)
	next("CONTAINER_STARTED_EVENT", p.id)
	id := p.create("main", 0, "sleep", "1000")
	next("CONTAINER_CREATED_EVENT", id)
	p.start(id)
	next("CONTAINER_STARTED_EVENT", id)
	p.stop(id, 0) // not a container that exits by itself: its stopped event may come before its started event
	next("CONTAINER_STOPPED_EVENT", id)
	wantState(t, p.inspect(id), exited, 137, "Error") // the new state is visible, because the runtime sends the event after the change
	p.remove(id)
	next("CONTAINER_DELETED_EVENT", id)
	if _, err := s.Runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	next("CONTAINER_STOPPED_EVENT", p.id)
	cancel()
	<-ended
}

func lists(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	a, b := p.start(p.create("a", 0, "sleep", "1000")), p.create("b", 0, "true")
	uid := map[string]string{"io.kubernetes.pod.uid": p.cfg.Metadata.Uid}
	for _, c := range []struct {
		name   string
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		{"sandbox", &runtimeapi.ContainerFilter{PodSandboxId: p.id}, []string{a, b}},
		{"label", &runtimeapi.ContainerFilter{LabelSelector: uid}, []string{a, b}},
		{"state", &runtimeapi.ContainerFilter{LabelSelector: uid, State: &runtimeapi.ContainerStateValue{State: running}}, []string{a}},
		{"id", &runtimeapi.ContainerFilter{Id: b}, []string{b}},
		{"none", &runtimeapi.ContainerFilter{Id: a, PodSandboxId: strings.Repeat("0", 64)}, nil},
	} {
		resp, err := s.Runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: c.filter})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range resp.Containers {
			got = append(got, l.Id)
			if l.PodSandboxId != p.id || l.ImageRef == "" || l.Labels["io.kubernetes.pod.uid"] != p.cfg.Metadata.Uid {
				t.Errorf("%s: %v", c.name, l)
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for state, want := range map[runtimeapi.PodSandboxState]int{runtimeapi.PodSandboxState_SANDBOX_READY: 1, runtimeapi.PodSandboxState_SANDBOX_NOTREADY: 0} {
		resp, err := s.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{LabelSelector: uid, State: &runtimeapi.PodSandboxStateValue{State: state}},
		})
		if err != nil || len(resp.Items) != want {
			t.Errorf("sandboxes %s: %v %v", state, resp, err)
		}
	}
	resp, err := s.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: p.id}})
	if err != nil || len(resp.Items) != 1 || resp.Items[0].Metadata.Uid != p.cfg.Metadata.Uid {
		t.Errorf("sandbox by ID: %v %v", resp, err)
	}
}

func images(t *testing.T, s Subject) {
	get := func(name string) *runtimeapi.Image {
		t.Helper()
		resp, err := s.Images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Image
	}
	img := get(s.Image)
	if img == nil || img.Id == "" || img.Size == 0 || !slices.Contains(img.RepoTags, s.Image) {
		t.Fatalf("image %v", img)
	}
	if byID := get(img.Id); byID == nil || byID.Id != img.Id {
		t.Errorf("by ID: %v", byID)
	}
	if none := get("registry.invalid/no/such:1"); none != nil {
		t.Errorf("a missing image: %v", none)
	}
	resp, err := s.Images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil || !slices.ContainsFunc(resp.Images, func(i *runtimeapi.Image) bool { return i.Id == img.Id }) {
		t.Errorf("ListImages: %v %v", resp, err)
	}
	if _, err := s.Images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "registry.invalid/no/such:1"}}); err == nil {
		t.Error("an image was pulled from a registry that does not exist")
	}
	_, err = s.Images.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: "registry.invalid/no/such:1"}})
	wantCode(t, "RemoveImage of what is not there", err, codes.OK)
	fs, err := s.Images.ImageFsInfo(t.Context(), &runtimeapi.ImageFsInfoRequest{})
	if err != nil || len(fs.ImageFilesystems) == 0 || fs.ImageFilesystems[0].GetFsId().GetMountpoint() == "" {
		t.Errorf("ImageFsInfo: %v %v", fs, err)
	}
	// The container is created with the image's ID, as node agents do it.
	p := newPod(t, s).run()
	req := p.container("main", 0, "true")
	req.Config.Image = &runtimeapi.ImageSpec{Image: img.Id, UserSpecifiedImage: s.Image}
	c, err := s.Runtime.CreateContainer(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if st := p.inspect(c.ContainerId); st.GetImage().GetImage() != s.Image || st.ImageId != img.Id {
		t.Errorf("image %v, ID %s", st.Image, st.ImageId)
	}
}

func stats(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	id := p.start(p.create("main", 0, "sleep", "1000"))
	eventually(t, "stats of cpu and memory", func() bool {
		resp, err := s.Runtime.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
		return err == nil && resp.Stats.GetAttributes().GetMetadata().GetName() == "main" &&
			resp.Stats.GetCpu().GetUsageCoreNanoSeconds() != nil && resp.Stats.GetMemory().GetWorkingSetBytes() != nil
	})
	resp, err := s.Runtime.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{PodSandboxId: p.id}})
	if err != nil || len(resp.Stats) != 1 || resp.Stats[0].GetAttributes().GetId() != id {
		t.Errorf("ListContainerStats: %v %v", resp, err)
	}
	_, err = s.Runtime.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: strings.Repeat("0", 64)})
	wantCode(t, "ContainerStats of no container", err, codes.NotFound)
}

func resources(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	id := p.start(p.create("main", 0, "sleep", "1000"))
	if _, err := s.Runtime.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 200, MemoryLimitInBytes: 96 << 20},
	}); err != nil {
		t.Fatal(err)
	}
	if got := p.inspect(id).GetResources().GetLinux(); got.GetMemoryLimitInBytes() != 96<<20 {
		t.Errorf("resources %v", got)
	}
	_, err := s.Runtime.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: strings.Repeat("0", 64), Linux: &runtimeapi.LinuxContainerResources{CpuShares: 200},
	})
	wantCode(t, "UpdateContainerResources of no container", err, codes.NotFound)
}

func logs(t *testing.T, s Subject) {
	if s.LogRoot == "" {
		t.Skip("this runtime writes no logs")
	}
	p := newPod(t, s)
	if err := os.MkdirAll(p.cfg.LogDirectory, 0o755); err != nil {
		t.Fatal(err)
	}
	id := p.run().start(p.create("main", 0, "sh", "-c", "echo one; echo two >&2; echo -n three"))
	p.ends(id)
	var lines []string
	eventually(t, "three lines in the log", func() bool {
		raw, err := os.ReadFile(filepath.Join(p.cfg.LogDirectory, "main.log"))
		if err != nil {
			return false
		}
		lines = nil
		for line := range strings.Lines(string(raw)) {
			at, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			lines = append(lines, rest)
		}
		return len(lines) == 3
	})
	slices.Sort(lines)
	if want := []string{"stderr F two", "stdout F one", "stdout P three"}; !slices.Equal(lines, want) {
		t.Errorf("log %q, want %q", lines, want)
	}
}
