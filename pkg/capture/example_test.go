// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/lklrun/lklrun/pkg/capture"
)

// request is an ICMP echo request in an Ethernet frame.
const request = "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00" +
	"\x45\x00\x00\x1c\x00\x01\x00\x00\x40\x01\x66\xde\x0a\x00\x00\x01\x0a\x00\x00\x02" +
	"\x08\x00\xf7\xfd\x00\x01\x00\x01"

// aStack has one interface, which has captured one packet.
type aStack struct{}

func (aStack) Interfaces(context.Context) ([]capture.Interface, error) {
	return []capture.Interface{{
		Index: 1, Name: "eth0", LinkType: capture.LinkTypeEthernet,
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")},
	}}, nil
}

func (aStack) Open(context.Context, capture.Options) (capture.Source, error) {
	return &aSource{}, nil
}

func (aStack) Watch(ctx context.Context, _ func(index int, gone bool) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (aStack) Sockets(context.Context) ([]capture.Socket, error) { return nil, nil }

// aSource returns one packet and then io.EOF.
type aSource struct{ read bool }

func (s *aSource) Read(context.Context) ([]capture.Packet, error) {
	if s.read {
		return nil, io.EOF
	}
	s.read = true
	return []capture.Packet{{Time: time.Unix(1700000000, 0), Dir: capture.Out, Length: len(request), Data: []byte(request)}}, nil
}

func (s *aSource) Stats(context.Context) (capture.Stats, error) {
	return capture.Stats{Received: 1}, nil
}

func (s *aSource) Stop(context.Context) error { return nil }
func (s *aSource) Close() error               { return nil }

// A session passes the packets of one or more stacks to a handler. Files is a
// handler that writes files. Ring is a handler that keeps the last packets in
// memory.
func ExampleSession() {
	ctx := context.Background()
	var file bytes.Buffer
	files, err := capture.NewFiles(capture.FileOptions{Path: "-", Out: &file, Application: "an example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	session, err := capture.NewSession(capture.Take{Names: []string{"eth0"}, Snaplen: 128})
	if err == nil {
		err = session.Add(ctx, aStack{}, "mine")
	}
	if err == nil {
		err = session.Run(ctx, files)
	}
	if err == nil {
		err = files.Close()
	}
	packets, _ := files.Written()
	fmt.Println(packets, "packet,", err)
	fmt.Printf("a file that begins with %x\n", file.Bytes()[:4])
	// Output:
	// 1 packet, <nil>
	// a file that begins with 0a0d0d0a
}

func ExampleRing() {
	ctx := context.Background()
	ring := capture.NewRing(1 << 20)
	session, err := capture.NewSession(capture.Take{Names: []string{"eth0"}})
	if err == nil {
		err = session.Add(ctx, aStack{}, "mine")
	}
	if err == nil {
		err = session.Run(ctx, ring)
	}
	packets, werr := ring.Write(ctx, io.Discard, "an example")
	fmt.Println(packets, "packet,", err, werr)
	// Output: 1 packet, <nil> <nil>
}

func ExampleNewPcapng() {
	var file bytes.Buffer
	w, err := capture.NewPcapng(&file, "an example")
	if err != nil {
		fmt.Println(err)
		return
	}
	number, err := w.AddInterface(capture.Interface{Name: "eth0", LinkType: capture.LinkTypeEthernet, Snaplen: 128})
	if err == nil {
		err = w.WritePacket(&capture.Packet{
			Interface: number, Time: time.Unix(1700000000, 0), Length: len(request), Data: []byte(request),
			Dir: capture.Out, Owner: &capture.Owner{PID: 42, Comm: "ping"}, Comment: "ping(42)",
		})
	}
	if err == nil {
		err = w.Close()
	}
	fmt.Println(bytes.Contains(file.Bytes(), []byte("ping(42)")), err)
	// Output: true <nil>
}

func ExampleCompile() {
	program, err := capture.Compile("", capture.LinkTypeEthernet, 128)
	fmt.Println(len(program), err)
	fmt.Println(capture.FormatOf("trace.pcap"), capture.FormatOf("trace.pcapng"))
	// Output:
	// 1 <nil>
	// pcap pcapng
}
