// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"slices"
	"strings"

	"github.com/lklrun/lklrun/bench/stacks"
)

// Rows, in the order of a table: copying, packet processing, waiting and waking, the
// rest.
const (
	rowStackCopy   = "copy, stack"
	rowTapWCopy    = "copy, write to the tap"
	rowTapRCopy    = "copy, read of the tap"
	rowUnixWCopy   = "copy, write to a unix socket"
	rowUnixRCopy   = "copy, read of a unix socket"
	rowSendCopy    = "copy, host's TCP send"
	rowRecvCopy    = "copy, host's TCP receive"
	rowTapWrite    = "write to the tap"
	rowTapRead     = "read of the tap"
	rowStack       = "stack"
	rowHostReceive = "host's receive path"
	rowHostSend    = "host's TCP send"
	rowHostRecv    = "host's TCP receive"
	rowUnixWrite   = "write to a unix socket"
	rowUnixRead    = "read of a unix socket"
	rowTarget      = "the target's memory"
	rowSeccomp     = "seccomp and its notifications"
	rowSockets     = "sockets made and closed"
	rowWait        = "looking and waiting for events"
	rowWake        = "waking, switching, interrupts"
	rowClock       = "reading the clock"
	rowChecksum    = "checksums"
	rowEngine      = "engine"
	rowProgram     = "programs"
	rowOther       = "other"

	rowIdle    = "idle"    // no process runs
	rowOutside = "outside" // time of processes outside the benchmarks
)

// rows lists the rows of a table, in order.
var rows = []string{
	rowStackCopy, rowTapWCopy, rowTapRCopy, rowUnixWCopy, rowUnixRCopy, rowSendCopy, rowRecvCopy, rowTapWrite, rowTapRead, rowStack, rowHostReceive, rowHostSend,
	rowHostRecv, rowUnixWrite, rowUnixRead, rowTarget, rowSeccomp, rowSockets, rowWait, rowWake, rowClock, rowChecksum, rowEngine, rowProgram, rowOther,
}

// copies maps each row to the row for the copies of bytes within it.
var copies = map[string]string{
	rowStack: rowStackCopy, rowTapWrite: rowTapWCopy, rowTapRead: rowTapRCopy, rowUnixWrite: rowUnixWCopy, rowUnixRead: rowUnixRCopy,
	rowHostSend: rowSendCopy, rowHostRecv: rowRecvCopy,
}

// Rules for the host's kernel.
var (
	// copying contains the functions that copy bytes between a program and a
	// packet.
	copying = set("_copy_from_iter _copy_to_iter copy_page_from_iter copy_page_to_iter rep_movs_alternative copy_user_generic csum_and_copy_from_iter csum_and_copy_to_iter " +
		"csum_partial_copy_generic skb_copy_bits memcpy memcpy_orig __memcpy")

	kernelRules = rules{
		// perf attributes the time of a wake-up to its caller, because the caller
		// enables interrupts again.
		rowWake: "try_to_wake_up __wake_up __wake_up_sync_key __wake_up_common wake_up_q sock_def_readable sock_def_write_space sk_stream_write_space unix_write_space " +
			"ep_poll_callback complete swake_up_locked futex_wake __schedule schedule schedule_idle finish_task_switch sched_ttwu_pending __x64_sys_sched_yield smp_call_function_single_async " +
			"sysvec_call_function_single sysvec_reschedule_ipi asm_sysvec_call_function_single asm_sysvec_reschedule_ipi exit_to_user_mode_loop",
		rowTapWrite: "tun_get_user tun_chr_write_iter tun_sendmsg __do_sys_io_uring_enter __x64_sys_io_uring_enter io_submit_sqes io_issue_sqe io_write",
		rowTapRead:  "tun_do_read tun_chr_read_iter tun_recvmsg",
		rowHostReceive: "net_rx_action __napi_poll process_backlog netif_receive_skb __netif_receive_skb netif_receive_skb_list_internal napi_gro_receive napi_gro_frags " +
			"enqueue_to_backlog tcp_v4_rcv tcp_v6_rcv __release_sock",
		rowHostSend:  "tcp_sendmsg tcp_sendmsg_locked",
		rowHostRecv:  "tcp_recvmsg tcp_recvmsg_locked tcp_poll",
		rowUnixWrite: "unix_stream_sendmsg unix_dgram_sendmsg",
		rowUnixRead:  "unix_stream_recvmsg unix_stream_read_generic unix_dgram_recvmsg",
		rowTarget:    "process_vm_rw process_vm_rw_core access_process_vm access_remote_vm __access_remote_vm",
		rowSeccomp: "__secure_computing __seccomp_filter seccomp_run_filters seccomp_do_user_notification seccomp_notify_ioctl seccomp_notify_recv seccomp_notify_send " +
			"seccomp_notify_addfd seccomp_notify_poll __x64_sys_pidfd_getfd __x64_sys_pidfd_open",
		rowSockets: "__sys_socket __sys_socketpair __sys_accept4 do_accept __sys_connect __sys_bind __sys_listen __sys_getsockname __sys_getpeername __sys_setsockopt __sys_getsockopt " +
			"__sys_shutdown inet_accept inet_stream_connect tcp_close inet_release unix_release __sock_release sock_close __fput ____fput close_fd __x64_sys_close do_sock_setsockopt",
		rowWait: "do_epoll_wait ep_poll ep_send_events do_epoll_ctl do_epoll_pwait do_sys_poll do_poll eventfd_read eventfd_write timerfd_read_iter do_timerfd_settime do_futex " +
			"__x64_sys_epoll_wait __x64_sys_epoll_pwait __x64_sys_epoll_pwait2 __x64_sys_ppoll __x64_sys_poll __x64_sys_nanosleep __x64_sys_clock_nanosleep",
		rowChecksum: "csum_partial skb_checksum __skb_checksum __skb_checksum_complete skb_checksum_help",
		rowIdle:     "do_idle cpu_startup_entry",
	}
	kernel = kernelRules.index()
)

// stackFile is the stack's library.
const stackFile = "liblkl.so"

// All code of the stack's library counts as the stack, except the following functions.
// Code of the C library counts for its caller, if the caller is known.
var (
	stackRules = rules{
		rowTapWrite: "lklh_net_write lklh_net_write_burst", rowTapRead: "lklh_net_read", rowChecksum: "do_csum csum_partial",
		rowWait: "events_look events_try_lead events_lead events_glance leader_sleep spin look ask", rowStack: "",
	}
	libcRules = rules{
		rowClock: "clock_gettime clock_gettime@@GLIBC_2", rowWait: "epoll_wait epoll_pwait poll ppoll __sched_yield",
	}
)

// files contains the rules for each file of a process. The key "" is the rule for
// functions of the file that have no rule of their own.
var files = map[string]map[string]string{
	stackFile:          stackRules.index(),
	"libc.so.6":        libcRules.index(),
	"liblklpreload.so": {"": rowEngine},
	"lklhost":          {"": rowEngine},
	"[vdso]":           {"": rowClock},
}

// stackCopying contains the stack's own copy functions.
var stackCopying = set("copy_avx2 copy_bytes memcpy memmove __memcpy lkl_memcpy csum_partial_copy_generic csum_and_copy_from_iter")

type rules map[string]string

// index maps a function's name to its row.
func (r rules) index() map[string]string {
	by := map[string]string{}
	for row, names := range r {
		if names == "" {
			by[""] = row
		}
		for _, n := range strings.Fields(names) {
			by[n] = row
		}
	}
	return by
}

func set(names string) map[string]bool {
	s := map[string]bool{}
	for _, n := range strings.Fields(names) {
		s[n] = true
	}
	return s
}

// row returns the row of one sample. The frames are ordered from the outermost, the
// program, to the innermost. The innermost function with a rule decides the row: for
// example, the host's receive path inside a write to the tap counts as the receive path.
func row(stack []stacks.Frame) string {
	program, stack := stack[0].Name, stack[1:]
	r := named(stack)
	idle := slices.ContainsFunc(stack, func(f stacks.Frame) bool { return f.File == stacks.Kernel && kernel[f.Name] == rowIdle })
	switch {
	case program == stacks.Nobody && !idle && r != rowHostReceive:
		return rowOutside
	case r != "":
		return r
	case program == "perf" || program == "lklrun" || program == "bench" || slices.ContainsFunc(stack, inKernel):
		return rowOther
	case program == "lklhost":
		return rowEngine
	}
	return rowProgram
}

func inKernel(f stacks.Frame) bool { return f.File == stacks.Kernel }

// named returns the row of a function in a stack, or "" if the function has no
// rule.
func named(stack []stacks.Frame) string {
	copied, called := false, false
	for _, f := range slices.Backward(stack) {
		name, _, _ := strings.Cut(f.Name, ".") // remove the compiler's suffix, such as .isra.0
		if inKernel(f) {
			called = true
			copied = copied || copying[name]
			if r := kernel[name]; r != "" {
				return copyOf(r, copied)
			}
			continue
		}
		copied = copied || f.File == stackFile && stackCopying[name]
		of := files[f.File]
		if r := of[name]; r != "" {
			return copyOf(r, copied)
		}
		if r := of[""]; r != "" && !called { // the default of a file does not apply to a function that it calls
			return copyOf(r, copied)
		}
	}
	return ""
}

func copyOf(r string, copied bool) string {
	if c := copies[r]; c != "" && copied {
		return c
	}
	return r
}
