"""What a fit leaves behind: a model, scaling, and where every series stands; and how to go on from there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Generator

from smc_transformer.forecaster.filtering import Judgement, advance, filter_series, join, judge, part_of, standing
from smc_transformer.forecaster.forecast import Forecast, mixture_of_paths
from smc_transformer.forecaster.panel import Panel
from smc_transformer.forecaster.paths import draw_futures
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, Series
from smc_transformer.model import SMCTransformer
from smc_transformer.population import Population
from smc_transformer.predictive import VarianceParts


class Standing(NamedTuple):
    """Where a series is.

    Attributes:
        population: its particles after its last row.
        last_time: the time of that row.
        scaler: its scaling.
    """

    population: Population
    last_time: Any
    scaler: Scaler


class Judged(NamedTuple):
    """Rows of a series, its scaling, and how surprising the rows were."""

    series: Series
    scaler: Scaler
    judgement: Judgement


@dataclass
class Fitted:
    """A trained model and the series it follows.

    Attributes:
        settings: of the forecaster.
        model: the trained model.
        panel: scaling.
        standings: where each series is.
        trained_until: the last time of each series that the fit has seen.
        generator: source of the filter's randomness; forecasts use copies of it.
    """

    settings: Settings
    model: SMCTransformer
    panel: Panel
    standings: dict[Name, Standing]
    trained_until: dict[Name, Any]
    generator: Generator

    def follow(
        self, given: Sequence[Series], generator: Generator | None, *, judging: bool = False
    ) -> tuple[dict[Name, Standing], list[Judged]]:
        """Filter series from their first complete rows; where they stand then, and how surprising their rows were."""
        begun = [self.panel.beginning(series) for series in given]
        scalers = [self.panel.scaler(series) for series in given]
        rows = [self.panel.rows(series, scaler) for series, scaler in zip(begun, scalers, strict=True)]
        populations, judgements = filter_series(self.model, rows, self.settings.n_particles, generator, judging=judging)
        standings = {
            series.name: Standing(population, series.times[-1], scaler)
            for series, population, scaler in zip(begun, populations, scalers, strict=True)
        }
        judged = [
            Judged(series.rows(slice(1, None)), scaler, judgement)
            for series, scaler, judgement in zip(begun, scalers, judgements, strict=True)
        ]
        return standings, judged

    def go_on(self, given: Sequence[Series]) -> list[Judged]:
        """Take filter steps from where series stand, one for each row; those that stand at the same place together."""
        alike: dict[tuple[Any, ...], list[Series]] = {}
        for series in given:
            place = standing(self.standings[series.name].population)
            alike.setdefault((*place, len(series)), []).append(series)
        return [judged for together in alike.values() for judged in self._go_on_together(together)]

    def _go_on_together(self, together: list[Series]) -> list[Judged]:
        before = [self.standings[series.name] for series in together]
        values = [one.scaler.transform(series.values) for one, series in zip(before, together, strict=True)]
        targets = torch.from_numpy(np.stack(values)).float()
        known = torch.from_numpy(np.stack([self.panel.known(series) for series in together])).float()
        population = join([one.population for one in before])
        steps = []
        for row in range(targets.shape[1]):
            prediction = advance(population, known[:, row], targets[:, row], self.generator)
            steps.append(judge(self.model, prediction, targets[:, row], self.generator))
        judged = []
        for number, (one, series) in enumerate(zip(before, together, strict=True)):
            alone = join([part_of(population, slice(number, number + 1))])
            self.standings[series.name] = Standing(alone, series.times[-1], one.scaler)
            parts = zip(*((step.log_density[number], step.pit[number]) for step in steps), strict=True)
            judged.append(Judged(series, one.scaler, Judgement(*(torch.stack(part) for part in parts))))
        return judged

    def forecast(
        self,
        standings: Mapping[Name, Standing],
        future: Mapping[Name, Series],
        n_paths: int,
        generator: Generator | None,
    ) -> Forecast:
        """Draw the futures of series.

        Args:
            standings: where they are.
            future: the times to forecast, and what is known of them.
            n_paths: paths of each series.
            generator: source of randomness.
        """
        settings, n_targets = self.settings, len(self.settings.targets)
        known = np.stack([self.panel.known(future[name]) for name in standings])
        populations = [one.population for one in standings.values()]
        futures = draw_futures(populations, torch.from_numpy(known).float(), n_paths, generator)
        scalers = tuple(one.scaler.first(n_targets) for one in standings.values())
        scaled = futures.paths[..., :n_targets].double().numpy()
        squares = torch.from_numpy(np.stack([scaler.spread**2 for scaler in scalers]))[:, None]
        times: tuple[pd.Index, ...] = tuple(future[name].times for name in standings)
        return Forecast(
            names=tuple(standings),
            times=times,
            targets=settings.targets,
            paths=np.stack([scaler.inverse(paths) for scaler, paths in zip(scalers, scaled, strict=True)]),
            id_column=settings.id_column,
            time_column=settings.time_column,
            scalers=scalers,
            first=mixture_of_paths(self.model, futures.first),
            parts=VarianceParts(*(part[..., :n_targets].double() * squares for part in futures.parts)),
        )
