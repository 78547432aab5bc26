/* The loops of a thread. */
#pragma once

static _Thread_local int whorl_runs_here; /* how many of them run, one inside the other */
