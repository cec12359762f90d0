package cricontract

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// userNamespaces tests that the runtime refuses a user namespace in mode POD without exactly one mapping of user IDs and one of group IDs,
// and refuses mappings in other modes.
func userNamespaces(t *testing.T, s Subject) {
	line := func(host uint32) *runtimeapi.IDMapping {
		return &runtimeapi.IDMapping{HostId: host, ContainerId: 0, Length: 65536}
	}
	for what, u := range map[string]*runtimeapi.UserNamespace{
		"no mappings":           {Mode: runtimeapi.NamespaceMode_POD},
		"no groups":             {Mode: runtimeapi.NamespaceMode_POD, Uids: []*runtimeapi.IDMapping{line(65536)}},
		"two lines":             {Mode: runtimeapi.NamespaceMode_POD, Uids: []*runtimeapi.IDMapping{line(65536), line(131072)}, Gids: []*runtimeapi.IDMapping{line(65536)}},
		"mappings in mode NODE": {Mode: runtimeapi.NamespaceMode_NODE, Uids: []*runtimeapi.IDMapping{line(65536)}, Gids: []*runtimeapi.IDMapping{line(65536)}},
		"mode CONTAINER":        {Mode: runtimeapi.NamespaceMode_CONTAINER},
	} {
		p := newPod(t, s)
		p.cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = u
		if resp, err := s.Runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: p.cfg}); err == nil {
			t.Errorf("%s: the runtime made sandbox %s", what, resp.PodSandboxId)
		}
	}
}

// imageMounts tests that the runtime refuses invalid mounts of images, that it mounts a present image read-only, and that the container's
// status names the image.
func imageMounts(t *testing.T, s Subject) {
	p := newPod(t, s).run()
	for what, m := range map[string]*runtimeapi.Mount{
		"an image that is not present": {ContainerPath: "/data", Readonly: true, Image: &runtimeapi.ImageSpec{Image: "registry.invalid/no/such:1"}},
		"an image to be written to":    {ContainerPath: "/data", Image: &runtimeapi.ImageSpec{Image: s.Image}},
		"an image and a path":          {ContainerPath: "/data", HostPath: "/", Readonly: true, Image: &runtimeapi.ImageSpec{Image: s.Image}},
		"an image without a name":      {ContainerPath: "/data", Readonly: true, Image: &runtimeapi.ImageSpec{}},
	} {
		req := p.container("main", 0, "true")
		req.Config.Mounts = []*runtimeapi.Mount{m}
		if _, err := s.Runtime.CreateContainer(t.Context(), req); err == nil {
			t.Errorf("%s was mounted", what)
		}
	}
	req := p.container("main", 0, "sleep", "1000")
	req.Config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", Readonly: true, Image: &runtimeapi.ImageSpec{Image: s.Image}}}
	resp, err := s.Runtime.CreateContainer(t.Context(), req)
	if err != nil {
		t.Fatalf("CreateContainer with an image that is present: %v", err)
	}
	st := p.inspect(p.start(resp.ContainerId))
	if len(st.Mounts) != 1 || st.Mounts[0].GetImage().GetImage() == "" || st.Mounts[0].ContainerPath != "/data" || !st.Mounts[0].Readonly {
		t.Errorf("mounts %v", st.Mounts)
	}
}
