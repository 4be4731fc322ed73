/* The threads of the pool: they sleep until there is a job, and one job is open at a time. */

#include "pool.h"

#include <pthread.h>
#include <unistd.h>

enum { MOST = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t job_is_open = PTHREAD_COND_INITIALIZER, all_are_done = PTHREAD_COND_INITIALIZER;
static int (*open_work)(void *); /* NULL: no job is open */
static void *open_job;
static int places, running, n_threads_there, in_use; /* places: how many more threads may join the job */
static pid_t owner; /* after a fork the threads are gone */

static void *help(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!open_work || places == 0) pthread_cond_wait(&job_is_open, &lock);
        int (*work)(void *) = open_work;
        void *job = open_job;
        places--;
        running++;
        pthread_mutex_unlock(&lock);
        work(job);
        pthread_mutex_lock(&lock);
        if (--running == 0) pthread_cond_signal(&all_are_done);
    }
    return NULL;
}

/* A child of a fork begins with an empty pool, whatever its parent was doing. */
static void start_anew(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&job_is_open, NULL);
    pthread_cond_init(&all_are_done, NULL);
    open_work = NULL;
    places = running = n_threads_there = in_use = 0;
}

int work_together(int (*work)(void *job), void *job, int n_threads)
{
    int helpers = (n_threads < MOST ? n_threads : MOST) - 1;
    if (helpers < 1) return work(job);
    pthread_mutex_lock(&lock);
    if (owner == 0) {
        owner = getpid();
        pthread_atfork(NULL, NULL, start_anew);
    }
    if (in_use) { /* another thread of the program has the pool */
        pthread_mutex_unlock(&lock);
        return work(job);
    }
    in_use = 1;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (n_threads_there < helpers && pthread_create(&thread, &detached, help, NULL) == 0) n_threads_there++;
    pthread_attr_destroy(&detached);
    open_work = work;
    open_job = job;
    places = helpers;
    pthread_cond_broadcast(&job_is_open);
    pthread_mutex_unlock(&lock);
    int failed = work(job);
    pthread_mutex_lock(&lock);
    open_work = NULL; /* who has not begun need not */
    while (running > 0) pthread_cond_wait(&all_are_done, &lock);
    in_use = 0;
    pthread_mutex_unlock(&lock);
    return failed;
}
