package simcri

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Clients returns generated clients that call the runtime in process. They copy nothing: a request must not be modified after
// the call, and an answer must not be modified.
func (r *Runtime) Clients() (runtimeapi.RuntimeServiceClient, runtimeapi.ImageServiceClient) {
	return &runtimeClient{r}, &imageClient{r}
}

type runtimeClient struct{ r *Runtime }

type imageClient struct{ r *Runtime }

var (
	_ runtimeapi.RuntimeServiceClient = (*runtimeClient)(nil)
	_ runtimeapi.ImageServiceClient   = (*imageClient)(nil)
	_ runtimeapi.RuntimeServiceServer = (*Runtime)(nil)
	_ runtimeapi.ImageServiceServer   = (*Runtime)(nil)
)

func (c *runtimeClient) Version(ctx context.Context, in *runtimeapi.VersionRequest, _ ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return c.r.Version(ctx, in)
}

func (c *runtimeClient) RunPodSandbox(ctx context.Context, in *runtimeapi.RunPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	return c.r.RunPodSandbox(ctx, in)
}

func (c *runtimeClient) StopPodSandbox(ctx context.Context, in *runtimeapi.StopPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	return c.r.StopPodSandbox(ctx, in)
}

func (c *runtimeClient) RemovePodSandbox(ctx context.Context, in *runtimeapi.RemovePodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	return c.r.RemovePodSandbox(ctx, in)
}

func (c *runtimeClient) PodSandboxStatus(ctx context.Context, in *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	return c.r.PodSandboxStatus(ctx, in)
}

func (c *runtimeClient) ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return c.r.ListPodSandbox(ctx, in)
}

func (c *runtimeClient) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	return c.r.CreateContainer(ctx, in)
}

func (c *runtimeClient) StartContainer(ctx context.Context, in *runtimeapi.StartContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return c.r.StartContainer(ctx, in)
}

func (c *runtimeClient) StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	return c.r.StopContainer(ctx, in)
}

func (c *runtimeClient) RemoveContainer(ctx context.Context, in *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	return c.r.RemoveContainer(ctx, in)
}

func (c *runtimeClient) ListContainers(ctx context.Context, in *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return c.r.ListContainers(ctx, in)
}

func (c *runtimeClient) ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return c.r.ContainerStatus(ctx, in)
}

func (c *runtimeClient) UpdateContainerResources(ctx context.Context, in *runtimeapi.UpdateContainerResourcesRequest, _ ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return c.r.UpdateContainerResources(ctx, in)
}

func (c *runtimeClient) ReopenContainerLog(ctx context.Context, in *runtimeapi.ReopenContainerLogRequest, _ ...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error) {
	return c.r.ReopenContainerLog(ctx, in)
}

func (c *runtimeClient) ExecSync(ctx context.Context, in *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	return c.r.ExecSync(ctx, in)
}

func (c *runtimeClient) Exec(ctx context.Context, in *runtimeapi.ExecRequest, _ ...grpc.CallOption) (*runtimeapi.ExecResponse, error) {
	return c.r.Exec(ctx, in)
}

func (c *runtimeClient) Attach(ctx context.Context, in *runtimeapi.AttachRequest, _ ...grpc.CallOption) (*runtimeapi.AttachResponse, error) {
	return c.r.Attach(ctx, in)
}

func (c *runtimeClient) PortForward(ctx context.Context, in *runtimeapi.PortForwardRequest, _ ...grpc.CallOption) (*runtimeapi.PortForwardResponse, error) {
	return c.r.PortForward(ctx, in)
}

func (c *runtimeClient) ContainerStats(ctx context.Context, in *runtimeapi.ContainerStatsRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatsResponse, error) {
	return c.r.ContainerStats(ctx, in)
}

func (c *runtimeClient) ListContainerStats(ctx context.Context, in *runtimeapi.ListContainerStatsRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	return c.r.ListContainerStats(ctx, in)
}

func (c *runtimeClient) PodSandboxStats(ctx context.Context, in *runtimeapi.PodSandboxStatsRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatsResponse, error) {
	return c.r.PodSandboxStats(ctx, in)
}

func (c *runtimeClient) ListPodSandboxStats(ctx context.Context, in *runtimeapi.ListPodSandboxStatsRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return c.r.ListPodSandboxStats(ctx, in)
}

func (c *runtimeClient) UpdateRuntimeConfig(ctx context.Context, in *runtimeapi.UpdateRuntimeConfigRequest, _ ...grpc.CallOption) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return c.r.UpdateRuntimeConfig(ctx, in)
}

func (c *runtimeClient) Status(ctx context.Context, in *runtimeapi.StatusRequest, _ ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	return c.r.Status(ctx, in)
}

func (c *runtimeClient) CheckpointContainer(ctx context.Context, in *runtimeapi.CheckpointContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error) {
	return c.r.CheckpointContainer(ctx, in)
}

func (c *runtimeClient) ListMetricDescriptors(ctx context.Context, in *runtimeapi.ListMetricDescriptorsRequest, _ ...grpc.CallOption) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return c.r.ListMetricDescriptors(ctx, in)
}

func (c *runtimeClient) ListPodSandboxMetrics(ctx context.Context, in *runtimeapi.ListPodSandboxMetricsRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	return c.r.ListPodSandboxMetrics(ctx, in)
}

func (c *runtimeClient) RuntimeConfig(ctx context.Context, in *runtimeapi.RuntimeConfigRequest, _ ...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error) {
	return c.r.RuntimeConfig(ctx, in)
}

func (c *runtimeClient) UpdatePodSandboxResources(ctx context.Context, in *runtimeapi.UpdatePodSandboxResourcesRequest, _ ...grpc.CallOption) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return c.r.UpdatePodSandboxResources(ctx, in)
}

func (c *imageClient) ListImages(ctx context.Context, in *runtimeapi.ListImagesRequest, _ ...grpc.CallOption) (*runtimeapi.ListImagesResponse, error) {
	return c.r.ListImages(ctx, in)
}

func (c *imageClient) ImageStatus(ctx context.Context, in *runtimeapi.ImageStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	return c.r.ImageStatus(ctx, in)
}

func (c *imageClient) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, _ ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	return c.r.PullImage(ctx, in)
}

func (c *imageClient) RemoveImage(ctx context.Context, in *runtimeapi.RemoveImageRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveImageResponse, error) {
	return c.r.RemoveImage(ctx, in)
}

func (c *imageClient) ImageFsInfo(ctx context.Context, in *runtimeapi.ImageFsInfoRequest, _ ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return c.r.ImageFsInfo(ctx, in)
}

func (c *runtimeClient) GetContainerEvents(ctx context.Context, _ *runtimeapi.GetEventsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], error) {
	sub, leave, err := c.r.subscribe(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { // also if the caller no longer reads the stream
		leave()
		sub.end(status.FromContextError(ctx.Err()).Err())
	})
	recv := func(ctx context.Context) (*runtimeapi.ContainerEventResponse, error) {
		e, err := sub.next(ctx)
		if err != nil {
			leave() // the caller no longer reads a stream that has ended
		}
		return e, err
	}
	return &eventStream{clientStream[runtimeapi.ContainerEventResponse]{ctx: ctx, recv: recv}, sub, leave}, nil
}

// eventStream is a stream of events in process.
type eventStream struct {
	clientStream[runtimeapi.ContainerEventResponse]
	sub   *subscription
	leave func()
}

// Follow calls event for each event, in their order, one after another, and ended once when the stream ends, as Recv would return them. It
// returns at once, and needs no goroutine while there is no event. After Follow, Recv must not be called.
func (s *eventStream) Follow(event func(*runtimeapi.ContainerEventResponse), ended func(error)) {
	s.sub.follow(event, func(err error) {
		s.leave()
		ended(err)
	})
}
