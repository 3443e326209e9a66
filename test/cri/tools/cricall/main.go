// SPDX-License-Identifier: Apache-2.0

// Command cricall makes one call of the container runtime interface, as kubelet does:
//
//	cricall SOCKET METHOD REQUEST
//
// Request and reply are JSON (protobuf's mapping). The services RuntimeService and
// ImageService have all methods.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
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
	fmt.Println(protojson.Format(reply))
	return nil
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
