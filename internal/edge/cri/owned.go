package cri

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// labelOwner is a label on each sandbox and container of a node that shares its runtime with others.
const labelOwner = "wherry.dev/owner"

// Owned wraps a runtime and shows only the pods of one owner. Without this filter, an agent that shares a runtime with a kubelet would
// stop the kubelet's pods, because none of its sources has them. Events are not filtered, because they only cause inspections.
func Owned(r runtimeapi.RuntimeServiceClient, owner string) runtimeapi.RuntimeServiceClient {
	return &owned{RuntimeServiceClient: r, owner: owner}
}

type owned struct {
	runtimeapi.RuntimeServiceClient
	owner string
}

// label returns a copy of labels with the owner's label.
func (o *owned) label(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[labelOwner] = o.owner
	return out
}

// others returns a function that reports whether an object belongs to another owner. It is needed because some runtimes ignore some
// filters.
func others[T interface{ GetLabels() map[string]string }](owner string) func(T) bool {
	return func(obj T) bool { return obj.GetLabels()[labelOwner] != owner }
}

func (o *owned) RunPodSandbox(ctx context.Context, in *runtimeapi.RunPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	if in.Config != nil {
		before := in.Config.Labels
		in.Config.Labels = o.label(before)
		defer func() { in.Config.Labels = before }()
	}
	return o.RuntimeServiceClient.RunPodSandbox(ctx, in, opts...)
}

func (o *owned) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, opts ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	if in.Config != nil {
		before := in.Config.Labels
		in.Config.Labels = o.label(before)
		defer func() { in.Config.Labels = before }()
	}
	return o.RuntimeServiceClient.CreateContainer(ctx, in, opts...)
}

func (o *owned) ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	f := in.GetFilter()
	out, err := o.RuntimeServiceClient.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		Id: f.GetId(), State: f.GetState(), LabelSelector: o.label(f.GetLabelSelector())}}, opts...)
	if err == nil {
		out.Items = slices.DeleteFunc(out.Items, others[*runtimeapi.PodSandbox](o.owner))
	}
	return out, err
}

func (o *owned) ListContainers(ctx context.Context, in *runtimeapi.ListContainersRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	f := in.GetFilter()
	out, err := o.RuntimeServiceClient.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		Id: f.GetId(), State: f.GetState(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: o.label(f.GetLabelSelector())}}, opts...)
	if err == nil {
		out.Containers = slices.DeleteFunc(out.Containers, others[*runtimeapi.Container](o.owner))
	}
	return out, err
}

func (o *owned) ListContainerStats(ctx context.Context, in *runtimeapi.ListContainerStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	f := in.GetFilter()
	return o.RuntimeServiceClient.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: o.label(f.GetLabelSelector())}}, opts...)
}

func (o *owned) ListPodSandboxStats(ctx context.Context, in *runtimeapi.ListPodSandboxStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	f := in.GetFilter()
	return o.RuntimeServiceClient.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: &runtimeapi.PodSandboxStatsFilter{
		Id: f.GetId(), LabelSelector: o.label(f.GetLabelSelector())}}, opts...)
}
