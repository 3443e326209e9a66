// SPDX-License-Identifier: Apache-2.0

// Command cricall makes one call of the container runtime interface, as kubelet does:
//
//	cricall SOCKET METHOD REQUEST
//
// Request and reply are JSON (protobuf's mapping). The services RuntimeService and
// ImageService have all methods. After PortForward, cricall forwards a port as kubectl does
// by way of kubelet, and copies its standard input and output:
//
//	cricall SOCKET PortForward '{"podSandboxId": ID, "port": [80]}'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const limit = time.Minute

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cricall:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("expected SOCKET METHOD REQUEST, not %q", args)
	}
	method := find(args[1])
	if method == nil {
		return fmt.Errorf("no method %s", args[1])
	}
	request, reply := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	if err := protojson.Unmarshal([]byte(args[2]), request); err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	c, err := grpc.NewClient("unix://"+args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	if err := c.Invoke(ctx, path, request, reply, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	if args[1] == "PortForward" {
		port := request.Get(method.Input().Fields().ByName("port")).List().Get(0).Int()
		return forward(reply.Get(method.Output().Fields().ByName("url")).String(), port)
	}
	fmt.Println(protojson.Format(reply))
	return nil
}

// forward connects to a port of a pod through the streaming server of the container runtime.
func forward(address string, port int64) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		return err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	f, err := portforward.New(dialer, []string{fmt.Sprint("0:", port)}, stop, ready, io.Discard, os.Stderr)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return fmt.Errorf("PortForward: %w", err)
	}
	local, err := f.GetPorts()
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", local[0].Local))
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(c, os.Stdin) }() // the protocol has no half-close
	_, err = io.Copy(os.Stdout, c)
	close(stop)
	return errors.Join(err, <-ended)
}

func find(name string) protoreflect.MethodDescriptor {
	services := cri.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		if m := services.Get(i).Methods().ByName(protoreflect.Name(name)); m != nil {
			return m
		}
	}
	return nil
}
