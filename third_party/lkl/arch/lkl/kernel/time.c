// SPDX-License-Identifier: GPL-2.0-only
/*
 * The host's clocks; the clock event is a deadline that the host library keeps.
 */
#include <linux/clockchips.h>
#include <linux/clocksource.h>
#include <linux/delay.h>
#include <linux/export.h>
#include <linux/init.h>
#include <linux/interrupt.h>
#include <linux/sched/clock.h>
#include <linux/timekeeping.h>
#include <asm/lkl.h>

static u64 clock_start;

static u64 clock_read(struct clocksource *cs)
{
	return lklh_mono();
}

/* Nanoseconds without correction: the host's clock is already disciplined. */
static struct clocksource clocksource = {
	.name	= "host",
	.rating	= 499,
	.read	= clock_read,
	.mask	= CLOCKSOURCE_MASK(64),
	.mult	= 1 << 23,
	.shift	= 23,
	.flags	= CLOCK_SOURCE_IS_CONTINUOUS | CLOCK_SOURCE_VALID_FOR_HRES,
};

/* Used from the very start; otherwise the clock would lose the boot time. */
struct clocksource * __init clocksource_default_clock(void)
{
	return &clocksource;
}

/**
 * read_persistent_wall_and_boot_offset - the host's clocks at boot
 *
 * CLOCK_MONOTONIC starts at the host's value, so absolute times can be passed
 * from one to the other.
 */
void __init read_persistent_wall_and_boot_offset(struct timespec64 *wall,
						 struct timespec64 *boot)
{
	*wall = ns_to_timespec64(lklh_real());
	*boot = ns_to_timespec64(lklh_mono());
}

static int next_event(unsigned long delta, struct clock_event_device *evt)
{
	lklh_set_deadline(lklh_mono() + delta);
	return 0;
}

static int no_event(struct clock_event_device *evt)
{
	lklh_set_deadline(0);
	return 0;
}

static struct clock_event_device clockevent = {
	.name			= "host",
	.features		= CLOCK_EVT_FEAT_ONESHOT,
	.rating			= 400,
	.set_next_event		= next_event,
	.set_state_shutdown	= no_event,
};

/**
 * lkl_timer_interrupt - the deadline has passed
 */
void lkl_timer_interrupt(void)
{
	clockevent.event_handler(&clockevent);
}

unsigned long long notrace sched_clock(void)
{
	return clock_start ? lklh_mono() - clock_start : 0;
}

void __init time_init(void)
{
	clock_start = lklh_mono();
	clockevent.cpumask = cpumask_of(0);
	/* keeps mult and shift, which have been in use since the start */
	__clocksource_register(&clocksource);
	clockevents_config_and_register(&clockevent, NSEC_PER_SEC, 1,
					S32_MAX);
}

/* The delay loop reads a clock, so it needs no calibration. */
unsigned long calibrate_delay_is_known(void)
{
	return NSEC_PER_SEC / HZ;
}

void __ndelay(unsigned long ns)
{
	u64 end = lklh_mono() + ns;

	if (lklh_virtual())	/* the clock stands still while the kernel runs */
		return;
	while (lklh_mono() < end)
		cpu_relax();
}
EXPORT_SYMBOL(__ndelay);

void __delay(unsigned long ns)
{
	__ndelay(ns);
}
EXPORT_SYMBOL(__delay);
