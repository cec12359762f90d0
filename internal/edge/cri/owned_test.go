package cri_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// Two nodes on one runtime do not see each other's pods, because one node would stop pods that the other needs.
func TestOwnedShowsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	r := simcri.New(simcri.Config{})
	defer r.Close()
	all, images := r.Clients()
	if _, err := images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "i"}}); err != nil {
		t.Fatal(err)
	}
	mine, yours := cri.Owned(all, "mine"), cri.Owned(all, "yours")
	ctx := t.Context()
	for name, c := range map[string]runtimeapi.RuntimeServiceClient{"mine": mine, "yours": yours, "nobody's": all} {
		labels := map[string]string{"io.kubernetes.pod.uid": name}
		sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: name}, Labels: labels}
		s, err := c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: sandbox, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Labels: labels, Image: &runtimeapi.ImageSpec{Image: "i"}}})
		if err != nil {
			t.Fatal(err)
		}
		if len(labels) != 1 {
			t.Errorf("the caller's labels have become %v", labels)
		}
	}
	for who, c := range map[string]struct {
		client runtimeapi.RuntimeServiceClient
		want   []string
	}{"mine": {mine, []string{"mine", "mine"}}, "yours": {yours, []string{"yours", "yours"}}} {
		var got []string
		sandboxes, err := c.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sandboxes.Items {
			got = append(got, s.Metadata.Name)
		}
		containers, err := c.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range containers.Containers {
			got = append(got, c.Metadata.Name)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s sees (-want +got):\n%s", who, d)
		}
	}
}
