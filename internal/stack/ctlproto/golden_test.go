// SPDX-License-Identifier: Apache-2.0

package ctlproto

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goldenFile = "testdata/golden.txt"

// message is the interface of all message bodies.
type message interface {
	Unmarshal([]byte) error
}

// sample is one message whose fields all have different values, so that swapped fields
// are detected. Stack hosts of other versions send the bytes of the golden file.
type sample struct {
	name  string
	value any
	bytes func() ([]byte, error) // nil: Go only receives it
	empty func() message         // nil: Go only sends it
}

// body adapts an Append method that cannot fail.
func body(f func([]byte) []byte) func() ([]byte, error) {
	return func() ([]byte, error) { return f(nil), nil }
}

func samples() []sample {
	hello := HelloRequest{Magic: CTL_MAGIC, Version: 1}
	helloRep := HelloReply{
		Version: 1, State: CTL_STATE_RUNNING, HostPID: 1001, TargetPID: 1002,
		ABI: CTL_ABI_NATIVE, StartNS: 0x1122334455667788, Stack: "mptcp", Release: "6.12.38", Arch: "arm64",
	}
	linkAdd := LinkAdd{
		Kind: CTL_LINK_TAP, Flags: CTL_LINKF_VNET_HDR | CTL_LINKF_OFFLOAD,
		MAC: [6]byte{2, 0, 0, 0xaa, 0xbb, 0xcc}, MTU: 1500,
	}
	linkRep := LinkReply{Dev: 3, IfIndex: 5}
	linkJoin := LinkJoin{Dev: 4}
	linkDel := LinkDel{Dev: 3}
	boot := Boot{Mem: 64 << 20, Cmdline: "loglevel=4"}
	start := Go{Flags: CTL_GOF_MPTCP, SpinUS: 50, ResolvConf: "/run/lklrun/a/resolv.conf"}
	goRep := GoReply{PID: 1002}
	// This call has all kinds of buffers: a sockaddr, as for sendto, and an iovec in
	// a msghdr.
	call := Syscall{
		Nr: 46, TimeoutMS: 250, WaitEvents: 1,
		Args: [6]uint64{7, 0, 64, 0, 0, 0xffffffffffffffff},
		Bufs: []Buf{
			{Place: 1, Flags: CTL_BUF_INOUT, Len: 16, Data: []byte("0123456789abcdef")},
			{Place: 0, Flags: CTL_BUF_IN | CTL_BUF_IN_BUF, Offset: 8, Len: 3, Data: []byte("xyz")},
			{Place: 4, Flags: CTL_BUF_OUT, Len: 32},
			{Place: 0, Flags: CTL_BUF_USED, Offset: 8},
		},
	}
	callRep := SyscallReply{Ret: -11, Out: []byte{}}
	callOut := SyscallReply{Ret: 5, Out: []byte("hello")}
	cancel := Cancel{ID: 77}
	events := Events{Mask: CTL_EV_EXIT | CTL_EV_PANIC | CTL_EV_WARN}
	event := Event{Kind: CTL_EV_EXIT, PID: 1002, TimeNS: 0x0102030405060708, Arg: -2, Text: "ended"}
	stop := Stop{Signal: 15, GraceMS: 2000}
	serve := Serve{Flags: CTL_SERVE_STAY}
	exec := Exec{Umask: 0o22, Dir: "/srv", Args: []string{"ip", "addr", ""}, Env: []string{"A=b", "C="}}
	execRep := ExecReply{WaitStatus: 0x7f00, How: CTL_EXEC_COMMAND, Error: 2}
	execSig := ExecSignal{ID: 77, Signal: 15, Flags: CTL_EXECF_GROUP}
	ask := Ask{Serial: 7, Flags: CTL_ASKF_FD, Text: []byte(`{"verb":"lease"}`)}
	answer := Answer{Serial: 7, Status: -2, Text: []byte(`{"a":1}`)}
	owners := []Owner{
		{StackIno: 11, CarrierIno: 0x100000002, PID: 1002, Conn: 4, StackFD: 9, Comm: "curl"},
		{StackIno: 12, CarrierIno: 13, PID: 14, Conn: 15, StackFD: -1, Comm: "fifteen-letters"},
	}
	return []sample{
		{"hello_req", hello, body(hello.Append), nil},
		{"hello_rep", helloRep, body(helloRep.Append), func() message { return new(HelloReply) }},
		{"link_add", linkAdd, body(linkAdd.Append), nil},
		{"link_rep", linkRep, nil, func() message { return new(LinkReply) }},
		{"link_join", linkJoin, body(linkJoin.Append), nil},
		{"link_del", linkDel, body(linkDel.Append), nil},
		{"boot", boot, body(boot.Append), nil},
		{"go", start, body(start.Append), nil},
		{"go_rep", goRep, nil, func() message { return new(GoReply) }},
		{"syscall", call, func() ([]byte, error) { return call.Append(nil) }, nil},
		{"syscall_rep_error", callRep, nil, func() message { return new(SyscallReply) }},
		{"syscall_rep", callOut, nil, func() message { return new(SyscallReply) }},
		{"cancel", cancel, body(cancel.Append), nil},
		{"events", events, body(events.Append), nil},
		{"event", event, body(event.Append), func() message { return new(Event) }},
		{"stop", stop, body(stop.Append), nil},
		{"serve", serve, body(serve.Append), nil},
		{"exec", exec, func() ([]byte, error) { return exec.Append(nil) }, nil},
		{"exec_rep", execRep, nil, func() message { return new(ExecReply) }},
		{"exec_signal", execSig, body(execSig.Append), nil},
		{"ask", ask, body(ask.Append), func() message { return new(Ask) }},
		{"answer", answer, body(answer.Append), nil},
		{"owners", ownerList(owners), nil, func() message { return new(ownerList) }},
		{"frame", Frame{Type: CTL_GO | CTL_REPLY, ID: 9, Status: -1, Body: []byte{1, 2}}, func() ([]byte, error) {
			return Frame{Type: CTL_GO | CTL_REPLY, ID: 9, Status: -1, Body: []byte{1, 2}}.Append(nil)
		}, func() message { return new(frame) }},
	}
}

// ownerList and frame implement the interface of a message for types that are not message
// bodies.
type ownerList []Owner

func (l *ownerList) Unmarshal(b []byte) (err error) {
	*l, err = UnmarshalOwners(b)
	return err
}

type frame Frame

func (f *frame) Unmarshal(b []byte) error {
	g, err := ReadFrame(strings.NewReader(string(b)))
	*f = frame(g)
	return err
}

func TestGolden(t *testing.T) {
	golden := readGolden(t)
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			want, ok := golden[s.name]
			if !ok {
				t.Fatalf("%s has no line in %s", s.name, goldenFile)
			}
			if s.bytes != nil {
				raw, err := s.bytes()
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, raw); diff != "" {
					t.Errorf("bytes differ (-golden +ours):\n%s", diff)
				}
			}
			if s.empty == nil {
				return
			}
			m := s.empty()
			if err := m.Unmarshal(want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fmt.Sprintf("%+v", s.value), fmt.Sprintf("%+v", reflect.ValueOf(m).Elem())); diff != "" {
				t.Errorf("decoded message differs (-sent +got):\n%s", diff)
			}
			// Unmarshal must reject every truncated message.
			for n := range want {
				if s.name == "owners" && n%ownerSize == 0 || s.name == "event" && n >= eventSize ||
					(s.name == "syscall_rep" || s.name == "ask") && n >= 8 {
					continue // the data after the struct may have any length
				}
				if err := s.empty().Unmarshal(want[:n]); err == nil {
					t.Errorf("the first %d of %d bytes were accepted", n, len(want))
				}
			}
		})
	}
}

func readGolden(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := os.Open(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	golden := map[string][]byte{}
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		name, digits, ok := strings.Cut(sc.Text(), " ")
		raw, err := hex.DecodeString(digits)
		if !ok || err != nil {
			t.Fatalf("%s: bad line %q", goldenFile, sc.Text())
		}
		golden[name] = raw
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return golden
}

func TestExecRefusals(t *testing.T) {
	for name, e := range map[string]Exec{
		"no command":            {Dir: "/"},
		"a zero byte":           {Dir: "/", Args: []string{"a\x00b"}},
		"a zero byte in folder": {Dir: "/\x00", Args: []string{"a"}},
	} {
		if _, err := e.Append(nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSyscallRefusals(t *testing.T) {
	for name, c := range map[string]Syscall{
		"no direction":          {Bufs: []Buf{{Place: 0, Len: 1}}},
		"unknown flag":          {Bufs: []Buf{{Place: 0, Flags: 0x11, Len: 1}}},
		"argument 6":            {Bufs: []Buf{{Place: 6, Flags: CTL_BUF_OUT, Len: 1}}},
		"offset in an argument": {Bufs: []Buf{{Place: 1, Flags: CTL_BUF_OUT, Offset: 8, Len: 1}}},
		"buffer in itself":      {Bufs: []Buf{{Place: 0, Flags: CTL_BUF_OUT | CTL_BUF_IN_BUF, Len: 8}}},
		"address cut off": {Bufs: []Buf{
			{Place: 0, Flags: CTL_BUF_OUT, Len: 12},
			{Place: 0, Flags: CTL_BUF_OUT | CTL_BUF_IN_BUF, Offset: 8, Len: 8},
		}},
		"odd offset": {Bufs: []Buf{
			{Place: 0, Flags: CTL_BUF_OUT, Len: 32},
			{Place: 0, Flags: CTL_BUF_OUT | CTL_BUF_IN_BUF, Offset: 4, Len: 8},
		}},
		"count of nothing": {Bufs: []Buf{{Place: 0, Flags: CTL_BUF_USED}}},
		"count in itself": {Bufs: []Buf{
			{Place: 0, Flags: CTL_BUF_OUT, Len: 32},
			{Place: 0, Flags: CTL_BUF_USED},
		}},
		"count of input": {Bufs: []Buf{
			{Place: 0, Flags: CTL_BUF_OUT, Len: 8},
			{Place: 1, Flags: CTL_BUF_INOUT, Len: 1, Data: []byte{1}},
			{Place: 0, Flags: CTL_BUF_USED},
		}},
		"count cut off": {Bufs: []Buf{
			{Place: 0, Flags: CTL_BUF_OUT, Len: 8},
			{Place: 1, Flags: CTL_BUF_OUT, Len: 8},
			{Place: 0, Flags: CTL_BUF_USED, Offset: 8},
		}},
		"count with a length": {Bufs: []Buf{
			{Place: 0, Flags: CTL_BUF_OUT, Len: 8},
			{Place: 1, Flags: CTL_BUF_OUT, Len: 8},
			{Place: 0, Flags: CTL_BUF_USED, Len: 1},
		}},
		"count that is not in the reply": {Bufs: []Buf{
			{Place: 0, Flags: CTL_BUF_IN, Len: 8, Data: make([]byte, 8)},
			{Place: 1, Flags: CTL_BUF_OUT, Len: 8},
			{Place: 0, Flags: CTL_BUF_USED},
		}},
		"count that is cut itself": {Bufs: []Buf{
			{Place: 0, Flags: CTL_BUF_OUT, Len: 8},
			{Place: 1, Flags: CTL_BUF_OUT, Len: 8},
			{Place: 0, Flags: CTL_BUF_USED},
			{Place: 2, Flags: CTL_BUF_OUT, Len: 8},
			{Place: 1, Flags: CTL_BUF_USED},
		}},
		"too many": {Bufs: make([]Buf, CTL_SYSCALL_BUFS+1)},
		"length":   {Bufs: []Buf{{Place: 0, Flags: CTL_BUF_IN, Len: 3, Data: []byte{1}}}},
	} {
		if _, err := c.Append(nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// An earlier version of the stack host does not report its architecture.
func TestHelloWithoutArch(t *testing.T) {
	b := HelloReply{Stack: "mptcp", Release: "6.12"}.Append(nil)
	b = b[:len(b)-1]
	le.PutUint32(b[20:], uint32(len(b)-helloReplySize))
	var m HelloReply
	if err := m.Unmarshal(b); err != nil || m.Release != "6.12" || m.Arch != "" {
		t.Errorf("%+v, %v", m, err)
	}
	b = b[:len(b)-1]
	le.PutUint32(b[20:], uint32(len(b)-helloReplySize))
	if err := m.Unmarshal(b); err == nil {
		t.Errorf("cut short: %+v", m)
	}
}
